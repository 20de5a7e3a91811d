/**
 * Layers on the kernel's overlayfs: a layer is a directory that was the upper of one mount, and a lower of any
 * number after that. Works on every file system that overlayfs takes as an upper (ext4, xfs, btrfs…).
 */
import { lstat, mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Clock } from '@torpor/engine';
import {
  errnoOf,
  hostMountNamespace,
  KeyedMutex,
  type MountNamespace,
  parseMounts,
  refuseMountsBelow,
  syncDirectory,
} from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { readContents } from './contents.ts';
import { compareContents, compareCount, recordContents, recordedContents } from './contents-record.ts';
import { exists } from './exists.ts';
import { CONTENTS, FILES, filesPath, layerOf, layerPath } from './layer-directory.ts';
import { conflict, corrupt, type Place, reading, unreadable, writing } from './layer-failure.ts';
import { type LayerId, makeLayerId } from './layer-id.ts';
import type { Layers, MountedStack, SealRecord, StoredLayer, Unmounted, Usage, Verified } from './layers.ts';
import { mergeFiles } from './merge.ts';
import { mountOverlay, optionsFor, placeOf, stackOf, stacksOf, topmostAt } from './overlay-mount.ts';
import { packDirectory, unpackDirectory } from './pack.ts';
import { run } from './program.ts';
import { isSealed, removeSeal, SealReader, writeSeal } from './seal-record.ts';
import { syncFileSystem } from './sync-file-system.ts';
import { unmountAt } from './unmount.ts';
import { matchTime, prepareUpper } from './upper.ts';
import { sealedUsageOf, usageOf } from './usage.ts';

export interface OverlayLayersOptions {
  /** The directory of all layers; made when it is not there. */
  readonly root: string;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
  /** Where stacks are mounted; in the mount namespace of this process unless said. */
  readonly mounts?: MountNamespace;
}

export async function openOverlayLayers(options: OverlayLayersOptions): Promise<Layers> {
  await mkdir(options.root, { recursive: true, mode: 0o700 });
  return new OverlayLayers(options);
}

class OverlayLayers implements Layers {
  readonly #root: string;
  readonly #options: OverlayLayersOptions;
  readonly #mounts: MountNamespace;
  readonly #changes = new KeyedMutex<LayerId>();
  readonly #verifications = new KeyedMutex<LayerId>();
  readonly #seals = new SealReader();
  /** Layers that are being filled right now. */
  readonly #making = new Set<LayerId>();

  constructor(options: OverlayLayersOptions) {
    this.#root = options.root;
    this.#options = options;
    this.#mounts = options.mounts ?? hostMountNamespace;
  }

  async create(): Promise<LayerId> {
    const id = makeLayerId(this.#options.randomBytes);
    await writing(this.#place(id), async () => {
      await mkdir(this.#at(id), { mode: 0o700 });
      // What the bottom of a stack shows of its top; an upper takes after the layer it is put upon.
      await mkdir(this.path(id), { mode: 0o755 });
    });
    return id;
  }

  path(id: LayerId): string {
    return filesPath(this.#root, id);
  }

  mount(at: string, lower: readonly LayerId[], upper: LayerId): Promise<void> {
    return this.#changes.run(upper, async () => {
      const options = optionsFor(lower, upper);
      const place = this.#place(upper);
      const below = Promise.all(lower.map((id) => this.inspect(id)));
      below.catch(() => {});
      const [path, sealed] = await Promise.all([placeOf(at), isSealed(this.#at(upper))]);
      const mounts = parseMounts(this.#mounts.mountinfo());
      const there = topmostAt(path, mounts);
      if (there !== undefined) return refuseOther(place, at, stackOf(there), { at, lower, upper });
      this.#refuseMounted(upper, stacksOf(mounts));
      if (sealed) throw conflict(place, 'is sealed and must not be written');
      await below;
      await writing(place, async () => {
        const top = this.path(lower[0] as LayerId);
        const isNew = await prepareUpper(this.#at(upper), top, place);
        // Nobody looks at the time before both are done, and each takes a program.
        const tasks = [
          mountOverlay(this.#root, at, options, this.#mounts),
          isNew ? matchTime(this.#at(upper), top) : undefined,
        ];
        await Promise.allSettled(tasks);
        await Promise.all(tasks);
      });
    });
  }

  unmount(at: string, whenBusy: 'refuse' | 'detach' = 'refuse'): Promise<Unmounted> {
    return unmountAt(at, whenBusy, this.#options.clock, this.#mounts);
  }

  async mounted(): Promise<MountedStack[]> {
    const ours: MountedStack[] = [];
    for (const stack of this.#mountedStacks()) if (await exists(this.#at(stack.upper))) ours.push(stack);
    return ours;
  }

  async presync(id: LayerId, signal?: AbortSignal): Promise<void> {
    await writing(this.#place(id), () => syncFileSystem(this.path(id), signal));
  }

  seal(id: LayerId, signal?: AbortSignal): Promise<SealRecord> {
    return this.#changes.run(id, async () => {
      const place = this.#place(id);
      if (await isSealed(this.#at(id))) {
        // A crash may have come between the record and its sync.
        await writing(place, () => syncDirectory(this.#at(id)));
        return this.#seals.read(this.#at(id), place);
      }
      if (!(await exists(this.path(id)))) throw conflict(place, 'is not there');
      return this.#sealIn(this.#at(id), id, signal);
    });
  }

  reopen(id: LayerId): Promise<void> {
    return this.#changes.run(id, async () => {
      const place = this.#place(id);
      const isBelow = this.#mountedStacks().some(({ lower }) => lower.includes(id));
      if (isBelow) throw conflict(place, 'lies under a mount and must not be written');
      if (!(await exists(this.#at(id)))) throw conflict(place, 'is not there');
      await writing(place, () => removeSeal(this.#at(id)));
    });
  }

  async inspect(id: LayerId, nonce?: string): Promise<SealRecord> {
    const place = this.#place(id);
    const record = await this.#look(place, () => this.#seals.read(this.#at(id), place));
    if (nonce !== undefined && record.nonce !== nonce) throw corrupt(place, 'was sealed another time');
    return record;
  }

  verify(id: LayerId, signal?: AbortSignal): Promise<Verified> {
    const verify = async () => {
      const place = this.#place(id);
      const seal = await this.inspect(id);
      const path = join(this.#at(id), CONTENTS);
      const recorded = await recordedContents(path, seal, { ...place, entry: CONTENTS });
      const found = await readContents(this.path(id), recorded, place, signal);
      if (recorded !== undefined) compareContents(recorded, found.lines, place);
      compareCount(seal, found.lines, place);
      if (recorded === undefined) await writing(place, () => recordContents(path, seal, found.lines));
      return { entries: found.lines.length, digested: found.digested, isFirst: recorded === undefined };
    };
    const judge = () =>
      this.#look(this.#place(id), verify).catch(async (thrown: unknown) => {
        // A layer that is being removed looks damaged to who was in the middle of reading it.
        await this.inspect(id);
        throw thrown;
      });
    return this.#verifications.run(id, judge, signal);
  }

  usage(id: LayerId, signal?: AbortSignal): Promise<Usage> {
    const place = this.#place(id);
    return this.#look(place, async () => {
      await reading(place, () => lstat(this.path(id)));
      return reading(place, () => usageOf(this.path(id), signal));
    });
  }

  async merge(newestFirst: readonly LayerId[], signal?: AbortSignal): Promise<LayerId> {
    if (newestFirst.length < 2) throw new TorporError('invalid_request', 'It takes two layers to merge.');
    await Promise.all(newestFirst.map((id) => this.inspect(id)));
    const id = makeLayerId(this.#options.randomBytes);
    await this.#make(id, async (directory) => {
      await mkdir(directory, { mode: 0o700 });
      await mergeFiles(
        newestFirst.map((source) => this.path(source)),
        join(directory, FILES),
        signal,
      );
      await this.#sealIn(directory, id, signal);
    });
    return id;
  }

  pack(id: LayerId, signal?: AbortSignal): Readable {
    const place = this.#place(id);
    const chunks = async function* (this: OverlayLayers) {
      await this.inspect(id);
      const packed = packDirectory(this.#at(id), signal);
      try {
        for (;;) {
          const next = await reading(place, () => packed.next());
          if (next.done === true) return;
          yield next.value;
        }
      } finally {
        await packed.return(undefined);
      }
    };
    return Readable.from(chunks.call(this), { objectMode: false });
  }

  unpack(id: LayerId, packed: Readable, signal?: AbortSignal): Promise<SealRecord> {
    return this.#changes.run(id, async () => {
      if (await exists(this.#at(id))) return this.inspect(id);
      await this.#make(id, async (directory, place) => {
        await unpackDirectory(directory, packed, signal);
        await new SealReader().read(directory, place);
        await syncFileSystem(directory, signal);
      });
      return this.inspect(id);
    });
  }

  remove(id: LayerId): Promise<void> {
    return this.#changes.run(id, async () => {
      this.#refuseMounted(id, this.#mountedStacks());
      refuseMountsBelow(this.#mounts, this.#at(id));
      this.#seals.forget(this.#at(id));
      const removing = layerPath(this.#root, id, 'removing');
      await writing({ ...this.#place(id), path: this.#root }, async () => {
        await removeTree(removing);
        for (const stage of ['making', 'layer'] as const) {
          const directory = layerPath(this.#root, id, stage);
          if (!(await exists(directory))) continue;
          await rename(directory, removing);
          await syncDirectory(this.#root);
          await removeTree(removing);
        }
      });
    });
  }

  async *list(): AsyncGenerator<StoredLayer> {
    const names = await readdir(this.#root).catch((thrown: unknown) => {
      throw new TorporError('checkpoint_unreadable', `The layers cannot be listed: ${errnoOf(thrown)}.`, {
        details: { path: this.#root },
        cause: thrown,
      });
    });
    for (const name of names) {
      const found = layerOf(name);
      if (found === undefined || (found.stage === 'making' && this.#making.has(found.id))) continue;
      if (found.stage !== 'layer') yield { id: found.id, state: found.stage };
      else yield { id: found.id, state: (await isSealed(this.#at(found.id))) ? 'sealed' : 'open' };
    }
  }

  /** Makes a layer beside the others and, when it is whole and sealed, moves it to them in one step. */
  async #make(id: LayerId, fill: (directory: string, place: Place) => Promise<void>): Promise<void> {
    const place = { ...this.#place(id), path: this.#root };
    const directory = layerPath(this.#root, id, 'making');
    this.#making.add(id);
    try {
      await removeTree(directory);
      await writing(place, async () => {
        await fill(directory, place);
        await rename(directory, this.#at(id));
        await syncDirectory(this.#root);
      });
    } catch (thrown) {
      // Should this fail as well, `list` shows what is left.
      await removeTree(directory).catch(() => {});
      throw thrown;
    } finally {
      this.#making.delete(id);
    }
  }

  async #sealIn(directory: string, layerId: LayerId, signal?: AbortSignal): Promise<SealRecord> {
    const files = join(directory, FILES);
    return writing({ layerId, path: directory }, async () => {
      const [usage] = await Promise.all([sealedUsageOf(files, signal), syncFileSystem(files, signal)]);
      signal?.throwIfAborted();
      const nonce = Buffer.from(this.#options.randomBytes(16)).toString('hex');
      const record = { layerId, nonce, sealedAt: this.#options.clock.now(), ...usage };
      await writeSeal(directory, record);
      return record;
    });
  }

  /** Where the layers are not mounted there are none; that one is missing there proves nothing. */
  async #look<T>(place: Place, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof TorporError) || thrown.code !== 'checkpoint_missing') throw thrown;
      if (await reading(place, () => exists(this.#root))) throw thrown;
      throw unreadable(place, 'the directory of all layers is not there', thrown);
    }
  }

  #mountedStacks(): MountedStack[] {
    return stacksOf(parseMounts(this.#mounts.mountinfo()));
  }

  #refuseMounted(id: LayerId, stacks: readonly MountedStack[]): void {
    const stack = stacks.find(({ lower, upper }) => upper === id || lower.includes(id));
    if (stack !== undefined) throw conflict(this.#place(id), `is mounted at ${stack.at}`);
  }

  #at(id: LayerId): string {
    return layerPath(this.#root, id);
  }

  #place(id: LayerId): Place {
    return { layerId: id, path: this.#at(id) };
  }
}

function refuseOther(place: Place, at: string, there: MountedStack | undefined, wanted: MountedStack): void {
  const isSame =
    there !== undefined && [there.upper, ...there.lower].join() === [wanted.upper, ...wanted.lower].join();
  if (!isSame) throw conflict(place, `cannot be mounted at ${at}, where something else is`);
}

/** By a program of its own, which reaches paths of any length and does not keep this process busy. */
async function removeTree(path: string): Promise<void> {
  await run('rm', ['-rf', '--', path]);
}
