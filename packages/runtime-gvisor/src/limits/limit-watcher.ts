/**
 * Ends a sandbox that takes more than it may, before others suffer, and writes down why.
 *
 * The kernel cannot refuse memory or disk to a program of a guest: it would refuse them to the sentry, which
 * stands still then. So the sandbox is ended, and what it had written is kept as after any other accident.
 */
import { stat, writeFile } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import { mountsBelow } from '@torpor/host';
import type { LayerId, Usage } from '@torpor/layers';
import { chargeOf, heldUsage, LayerWatch, roomOf } from '@torpor/layers';
import type { Resources } from '@torpor/protocol';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { passedLimit, REASONS } from './end-reason.ts';

const MIB = 1024 * 1024;
const LOOK_EVERY_MS = 500;
/** Who has just started has better things to do than to be measured. */
const FIRST_MS = 1_000;
/** So much is left for cleaning up to a sandbox that has used up what it may have: this, or a part of it. */
const DISK_GRACE_MB = 256;
const DISK_GRACE_PART = 1 / 4;
/** Sealed layers do not change, so that each is measured once; past so many it starts over. */
const SIZES_KEPT = 10_000;

interface Watched {
  readonly instance: Instance;
  readonly record: InstanceRecord;
  readonly limits: Resources;
  /** Its sentry and its gofer, which hold its open files. */
  pids?: readonly number[];
}

export class LimitWatcher {
  readonly #ctx: RuntimeContext;
  readonly #byName = new Map<string, Watched>();
  readonly #byLayer = new Map<LayerId, Watched>();
  readonly #closing = new AbortController();
  readonly #disk: LayerWatch;
  readonly #sizes = new Map<LayerId, number>();
  /** One after the other, so that a server that finds many sandboxes does not walk through all their files at once. */
  #measuring: Promise<void> = Promise.resolve();
  readonly #looking: Promise<void>;

  readonly #ended: (instance: Instance) => void;

  /** `ended` is told of each sandbox that was ended. */
  constructor(ctx: RuntimeContext, ended: (instance: Instance) => void) {
    this.#ctx = ctx;
    this.#ended = ended;
    const { clock, place, report } = ctx;
    this.#disk = new LayerWatch({
      usage: (id, signal) => this.#usage(id, signal),
      room: () => roomOf(place),
      clock,
      passed: async (id) => {
        const watched = this.#byLayer.get(id);
        if (watched === undefined) return;
        await this.#end(watched, REASONS.disk(watched.limits));
      },
      failed: (id, error) => report('the files of a sandbox could not be measured', { layer: id, error }),
    });
    this.#looking = this.#look();
  }

  /** `limits` with nothing left open that the machine must be protected from. */
  add(instance: Instance, record: InstanceRecord, limits: Resources): void {
    const { clock, report } = this.#ctx;
    const watched: Watched = { instance, record, limits };
    this.#byName.set(record.container.id, watched);
    if (limits.diskMb === undefined) return;
    this.#byLayer.set(record.upper, watched);
    const measure = () => {
      if (this.#byLayer.get(record.upper) !== watched) return;
      this.#disk.watch(record.upper, (limits.diskMb ?? 0) * MIB);
      this.#measuring = this.#measuring
        .then(() => this.#countBelow(watched, limits.diskMb ?? 0))
        .catch((error: unknown) => report('the files of a sandbox could not be measured', { error }));
    };
    clock.sleep(FIRST_MS, this.#closing.signal).then(measure, () => {});
  }

  remove({ container, upper }: InstanceRecord): void {
    this.#byName.delete(container.id);
    this.#byLayer.delete(upper);
    this.#disk.unwatch(upper);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#looking, this.#measuring, this.#disk.stop()]);
  }

  /** What has names, and what is deleted and still held open. */
  async #usage(id: LayerId, signal: AbortSignal): Promise<Usage> {
    const named = await this.#ctx.layers.usage(id, signal);
    const watched = this.#byLayer.get(id);
    if (watched === undefined) return named;
    const { container, rootfs } = watched.record;
    const { mounts, runsc } = this.#ctx;
    // Somebody may have unmounted it. The sandbox runs on, but its device is unknown.
    if (mountsBelow(mounts.table(), rootfs).length === 0) return named;
    watched.pids ??= await runsc.processes(container);
    const held = await heldUsage(watched.pids, (await stat(mounts.reach(rootfs))).dev, signal);
    return { bytes: named.bytes + held.bytes, entries: named.entries + held.entries };
  }

  async #look(): Promise<void> {
    const { cgroups, clock, report } = this.#ctx;
    const { signal } = this.#closing;
    while (!signal.aborted && cgroups !== null) {
      await clock.sleep(LOOK_EVERY_MS, signal).catch(() => {});
      for (const [name, watched] of this.#byName) {
        if (signal.aborted) return;
        const why = await passedLimit(this.#ctx, name, watched.limits);
        if (why === undefined) continue;
        await this.#end(watched, why).catch((error: unknown) =>
          report('a sandbox could not be ended', { error }),
        );
      }
    }
  }

  async #end({ instance, record }: Watched, why: string): Promise<void> {
    const { files, runsc, network, report } = this.#ctx;
    await writeFile(files.paths(instance).ended, JSON.stringify({ why }), { mode: 0o600 });
    this.remove(record);
    await runsc.end(record.container, new AbortController().signal);
    this.#ended(instance);
    // Who waits for an answer of it hears that there will be none.
    await network.reset(record.container.id);
    report('a sandbox was ended', { ...instance, why });
  }

  /** What it has in sealed layers of its own counts too: those of the template are everybody's. */
  async #countBelow(watched: Watched, diskMb: number): Promise<void> {
    const { lower, upper } = watched.record;
    const template = lower.at(-1)?.owner;
    let below = 0;
    for (const { id, owner } of lower) {
      if (this.#closing.signal.aborted || this.#byLayer.get(upper) !== watched) return;
      if (owner !== template) below += await this.#sizeOf(id);
    }
    if (below === 0 || this.#byLayer.get(upper) !== watched) return;
    const grace = Math.min(DISK_GRACE_MB, diskMb * DISK_GRACE_PART);
    this.#disk.watch(upper, Math.max(diskMb * MIB - below, grace * MIB));
  }

  async #sizeOf(id: LayerId): Promise<number> {
    const known = this.#sizes.get(id);
    if (known !== undefined) return known;
    const size = chargeOf(await this.#ctx.layers.usage(id, this.#closing.signal));
    if (this.#sizes.size >= SIZES_KEPT) this.#sizes.clear();
    this.#sizes.set(id, size);
    return size;
  }
}
