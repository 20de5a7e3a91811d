/**
 * Layers on the kernel's overlayfs. A layer is a directory: the upper directory of one mount, a copy of one, or several
 * layers merged. A sealed layer is a lower directory of any number of mounts. Works on every file system that overlayfs accepts for an upper (ext4, xfs, btrfs…).
 */
import { lstat, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Clock } from '@torpor/engine';
import {
  allDone,
  errnoOf,
  exists,
  type GiveWay,
  hostMountNamespace,
  KeyedMutex,
  type MountNamespace,
  parseMounts,
  refuseMountsBelow,
  syncDirectory,
} from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { compareContents, compareCount, recordContents, recordedContents } from './contents-record.ts';
import { areSyncable, readFewEntries, sizesAtTop, syncEntries } from './few-entries.ts';
import { canReflink, copyFiles, removeByProgram, syncFileSystem } from './file-programs.ts';
import { readContents } from './layer-contents.ts';
import { CONTENTS, DAMAGED, FILES, filesPath, layerOf, layerPath, WORK } from './layer-directory.ts';
import { conflict, corrupt, mapReadErrors, mapWriteErrors, type Place, unreadable } from './layer-failure.ts';
import { type LayerId, makeLayerId } from './layer-id.ts';
import { sealedUsageOf, usageOf } from './layer-usage.ts';
import type {
  Layers,
  ListedLayer,
  MountedStack,
  SealOptions,
  SealRecord,
  Unmounted,
  Usage,
  Verified,
} from './layers.ts';
import { mergeFiles } from './merge.ts';
import { mountOverlay, optionsFor, realPathOf, stackOf, stacksOf, topmostAt } from './overlay-mount.ts';
import { packDirectory, unpackDirectory } from './pack.ts';
import { copyMtime, prepareUpper } from './prepare-upper.ts';
import { type FoundQuotas, findProjectQuotas } from './project-quotas.ts';
import { isSealed, removeSeal, SealReader, writeSeal } from './seal-record.ts';
import { unmountAt } from './unmount.ts';

export interface OverlayLayersOptions {
  /** The directory of all layers. Created when it does not exist. */
  readonly root: string;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
  /** The mount namespace in which stacks are mounted; by default that of this process. `setMountNamespace` changes it. */
  readonly mounts?: MountNamespace;
}

export async function openOverlayLayers(options: OverlayLayersOptions): Promise<Layers> {
  await mkdir(options.root, { recursive: true, mode: 0o700 });
  return new OverlayLayers(options);
}

class OverlayLayers implements Layers {
  readonly #root: string;
  readonly #options: OverlayLayersOptions;
  #mounts: MountNamespace;
  readonly #changes = new KeyedMutex<LayerId>();
  readonly #verifications = new KeyedMutex<LayerId>();
  readonly #seals = new SealReader();
  #sharesBlocks: Promise<boolean> | undefined;
  /** Layers that a merge or an unpacking of this process is filling now. */
  readonly #creating = new Set<LayerId>();

  constructor(options: OverlayLayersOptions) {
    this.#root = options.root;
    this.#options = options;
    this.#mounts = options.mounts ?? hostMountNamespace;
  }

  setMountNamespace(mounts: MountNamespace): void {
    this.#mounts = mounts;
  }

  async create(): Promise<LayerId> {
    const id = makeLayerId(this.#options.randomBytes);
    await mapWriteErrors(this.#place(id), async () => {
      await mkdir(this.#pathOf(id), { mode: 0o700 });
      // The mode of `/` in a sandbox whose lowest layer this is. An upper takes over the mode of the layer below it.
      await mkdir(this.path(id), { mode: 0o755 });
    });
    return id;
  }

  path(id: LayerId): string {
    return filesPath(this.#root, id);
  }

  async directories(id: LayerId): Promise<readonly string[]> {
    const work = join(this.#pathOf(id), WORK);
    return (await exists(work)) ? [this.path(id), work] : [this.path(id)];
  }

  mount(at: string, lower: readonly LayerId[], upper: LayerId): Promise<void> {
    return this.#changes.run(upper, async () => {
      const options = optionsFor(lower, upper);
      const place = this.#place(upper);
      const below = Promise.all(lower.map((id) => this.inspect(id)));
      below.catch(() => {});
      const [path, sealed] = await Promise.all([realPathOf(at), isSealed(this.#pathOf(upper))]);
      const mounts = parseMounts(this.#mounts.mountinfo());
      const there = topmostAt(path, mounts);
      if (there !== undefined) return refuseOther(place, at, stackOf(there), { at, lower, upper });
      this.#refuseMounted(upper, stacksOf(mounts));
      if (sealed) throw conflict(place, 'is sealed and must not be written');
      await below;
      await mapWriteErrors(place, async () => {
        const top = this.path(lower[0] as LayerId);
        const isNew = await prepareUpper(this.#pathOf(upper), top, place);
        // In parallel, because each task runs a program. The sandbox starts only after both.
        await allDone(
          mountOverlay(this.#root, at, options, this.#mounts),
          isNew ? copyMtime(this.#pathOf(upper), top) : undefined,
        );
      });
    });
  }

  unmount(at: string, whenBusy: 'refuse' | 'detach' = 'refuse'): Promise<Unmounted> {
    return unmountAt(at, whenBusy, this.#options.clock, this.#mounts);
  }

  async mounted(): Promise<MountedStack[]> {
    const ours: MountedStack[] = [];
    for (const stack of this.#mountedStacks()) if (await exists(this.#pathOf(stack.upper))) ours.push(stack);
    return ours;
  }

  async presync(id: LayerId, signal?: AbortSignal): Promise<void> {
    await mapWriteErrors(this.#place(id), () => syncFileSystem(this.path(id), signal));
  }

  seal(id: LayerId, signal?: AbortSignal, options: SealOptions = {}): Promise<SealRecord> {
    return this.#changes.run(id, async () => {
      const place = this.#place(id);
      if (await isSealed(this.#pathOf(id))) {
        // An earlier process may have crashed between writing the record and syncing it.
        await mapWriteErrors(place, () => syncDirectory(this.#pathOf(id)));
        return this.#seals.read(this.#pathOf(id), place);
      }
      if (!(await exists(this.path(id)))) throw conflict(place, 'is not there');
      return this.#sealIn(this.#pathOf(id), id, signal, options);
    });
  }

  copyInto(to: LayerId, from: LayerId, signal?: AbortSignal): Promise<void> {
    return this.#changes.run(to, async () => {
      const place = this.#place(to);
      if (await isSealed(this.#pathOf(to))) throw conflict(place, 'is sealed and must not be written');
      this.#refuseMounted(to, this.#mountedStacks());
      await mapWriteErrors(place, () => copyFiles(this.path(from), this.path(to), signal));
    });
  }

  sharesBlocks(): Promise<boolean> {
    this.#sharesBlocks ??= canReflink(this.#root);
    return this.#sharesBlocks;
  }

  projectQuotas(): Promise<FoundQuotas> {
    return findProjectQuotas(this.#root);
  }

  reopen(id: LayerId): Promise<void> {
    return this.#changes.run(id, async () => {
      const place = this.#place(id);
      const isBelow = this.#mountedStacks().some(({ lower }) => lower.includes(id));
      if (isBelow) throw conflict(place, 'is a lower layer of a mount and must not be written');
      if (!(await exists(this.#pathOf(id)))) throw conflict(place, 'is not there');
      await mapWriteErrors(place, () => removeSeal(this.#pathOf(id)));
    });
  }

  async inspect(id: LayerId, nonce?: string): Promise<SealRecord> {
    const place = this.#place(id);
    const record = await this.#unreadableWhenRootIsMissing(place, () =>
      this.#seals.read(this.#pathOf(id), place),
    );
    if (nonce !== undefined && record.nonce !== nonce) throw corrupt(place, 'was sealed another time');
    return record;
  }

  verify(
    id: LayerId,
    signal?: AbortSignal,
    mode: 'record' | 'compare' = 'record',
    giveWay?: GiveWay,
  ): Promise<Verified> {
    const verify = async () => {
      const place = this.#place(id);
      const seal = await this.inspect(id);
      const path = join(this.#pathOf(id), CONTENTS);
      const recorded = await recordedContents(path, seal, { ...place, entry: CONTENTS });
      const found = await readContents(this.path(id), recorded, place, signal, giveWay);
      if (recorded !== undefined) compareContents(recorded, found.lines, place);
      compareCount(seal, found.lines, place);
      if (recorded === undefined && mode === 'record')
        await mapWriteErrors(place, () => recordContents(path, seal, found.lines));
      return { entries: found.lines.length, digested: found.digested, isFirst: recorded === undefined };
    };
    const mark = join(this.#pathOf(id), DAMAGED);
    const judge = async () => {
      try {
        const verified = await this.#unreadableWhenRootIsMissing(this.#place(id), verify);
        await rm(mark, { force: true });
        return verified;
      } catch (thrown) {
        // A layer that is removed while it is read looks damaged. In that case `inspect` throws `checkpoint_missing`.
        await this.inspect(id);
        // Without the mark, others may go on to use the layer.
        if (thrown instanceof TorporError && thrown.code === 'checkpoint_corrupt')
          await writeFile(mark, '').catch(() => {});
        throw thrown;
      }
    };
    return this.#verifications.run(id, judge, signal);
  }

  isKnownDamaged(id: LayerId): Promise<boolean> {
    return exists(join(this.#pathOf(id), DAMAGED));
  }

  usage(id: LayerId, signal?: AbortSignal): Promise<Usage> {
    const place = this.#place(id);
    return this.#unreadableWhenRootIsMissing(place, async () => {
      await mapReadErrors(place, () => lstat(this.path(id)));
      return mapReadErrors(place, () => usageOf(this.path(id), signal));
    });
  }

  async merge(newestFirst: readonly LayerId[], signal?: AbortSignal): Promise<LayerId> {
    if (newestFirst.length < 2) throw new TorporError('invalid_request', 'It takes two layers to merge.');
    await Promise.all(newestFirst.map((id) => this.inspect(id)));
    const id = makeLayerId(this.#options.randomBytes);
    await this.#createFilled(id, async (directory) => {
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
      const packed = packDirectory(this.#pathOf(id), signal);
      try {
        for (;;) {
          const next = await mapReadErrors(place, () => packed.next());
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
      if (await exists(this.#pathOf(id))) return this.inspect(id);
      await this.#createFilled(id, async (directory, place) => {
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
      refuseMountsBelow(this.#mounts, this.#pathOf(id));
      this.#seals.forget(this.#pathOf(id));
      const removing = layerPath(this.#root, id, 'removing');
      await mapWriteErrors({ ...this.#place(id), path: this.#root }, async () => {
        await removeByProgram(removing);
        for (const stage of ['creating', 'layer'] as const) {
          const directory = layerPath(this.#root, id, stage);
          if (!(await exists(directory))) continue;
          await rename(directory, removing);
          await syncDirectory(this.#root);
          await removeByProgram(removing);
        }
      });
    });
  }

  async *list(): AsyncGenerator<ListedLayer> {
    const names = await readdir(this.#root).catch((thrown: unknown) => {
      throw new TorporError('checkpoint_unreadable', `The layers cannot be listed: ${errnoOf(thrown)}.`, {
        details: { path: this.#root },
        cause: thrown,
      });
    });
    for (const name of names) {
      const found = layerOf(name);
      if (found === undefined || (found.stage === 'creating' && this.#creating.has(found.id))) continue;
      if (found.stage !== 'layer') yield { id: found.id, state: found.stage };
      else yield { id: found.id, state: (await isSealed(this.#pathOf(found.id))) ? 'sealed' : 'open' };
    }
  }

  /** Fills a layer under a temporary name and renames it when it is complete and sealed. */
  async #createFilled(id: LayerId, fill: (directory: string, place: Place) => Promise<void>): Promise<void> {
    const place = { ...this.#place(id), path: this.#root };
    const directory = layerPath(this.#root, id, 'creating');
    this.#creating.add(id);
    try {
      await removeByProgram(directory);
      await mapWriteErrors(place, async () => {
        await fill(directory, place);
        await rename(directory, this.#pathOf(id));
        await syncDirectory(this.#root);
      });
    } catch (thrown) {
      // When this fails too, `list` shows the rest as `creating`.
      await removeByProgram(directory).catch(() => {});
      throw thrown;
    } finally {
      this.#creating.delete(id);
    }
  }

  async #sealIn(
    directory: string,
    layerId: LayerId,
    signal?: AbortSignal,
    { recordsSizes = false }: SealOptions = {},
  ): Promise<SealRecord> {
    const files = join(directory, FILES);
    return mapWriteErrors({ layerId, path: directory }, async () => {
      const few = await readFewEntries(files);
      const sync = async () => {
        if (few === undefined || !areSyncable(few)) return syncFileSystem(files, signal);
        // The name of the layer too, which is in the directory of all layers.
        await allDone(syncEntries(few, signal), syncDirectory(this.#root));
      };
      const [usage] = await allDone(sealedUsageOf(files, few, signal), sync());
      signal?.throwIfAborted();
      const nonce = Buffer.from(this.#options.randomBytes(16)).toString('hex');
      const sizes = recordsSizes ? { sizes: sizesAtTop(files, few ?? []) } : {};
      const record = { layerId, nonce, sealedAt: this.#options.clock.now(), ...usage, ...sizes };
      await writeSeal(directory, record);
      return record;
    });
  }

  /** Turns `checkpoint_missing` into `checkpoint_unreadable` when the root itself is missing: its disk may not be mounted. */
  async #unreadableWhenRootIsMissing<T>(place: Place, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof TorporError) || thrown.code !== 'checkpoint_missing') throw thrown;
      if (await mapReadErrors(place, () => exists(this.#root))) throw thrown;
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

  #pathOf(id: LayerId): string {
    return layerPath(this.#root, id);
  }

  #place(id: LayerId): Place {
    return { layerId: id, path: this.#pathOf(id) };
  }
}

function refuseOther(place: Place, at: string, there: MountedStack | undefined, wanted: MountedStack): void {
  const isSame =
    there !== undefined && [there.upper, ...there.lower].join() === [wanted.upper, ...wanted.lower].join();
  if (!isSame) throw conflict(place, `cannot be mounted at ${at}, where something else is`);
}
