/**
 * Ends a sandbox that exceeds its limits, before other sandboxes suffer, and records the reason.
 *
 * The kernel cannot refuse memory to a single program of a guest: it would refuse it to the sentry, which then
 * hangs. So the sandbox is ended, and its files are kept as after any other crash. Only project quotas refuse disk to a single
 * write (`disk-projects.ts`); a sandbox that has one is not measured here.
 */
import { stat, writeFile } from 'node:fs/promises';
import type { DiskUsage, Instance } from '@torpor/engine';
import { mountsBelow } from '@torpor/host';
import type { LayerId, Usage } from '@torpor/layers';
import { billableBytes, deletedFilesUsage, freeSpaceOf, LayerWatch } from '@torpor/layers';
import type { Resources } from '@torpor/protocol';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { diskGraceBytes } from './default-limits.ts';
import { exceededLimit, REASONS } from './end-reason.ts';

const MIB = 1024 * 1024;
const CHECK_EVERY_MS = 500;
/** Measuring would slow down a sandbox that is just starting. */
const FIRST_MEASURE_MS = 1_000;
/** Callers who ask how much disk space a sandbox uses get one measurement for this long. */
const REUSE_USAGE_MS = 5_000;
/** Each sealed layer is measured once, because it never changes. When this many sizes are known, they are dropped. */
const MAX_KNOWN_SIZES = 10_000;

interface Watched {
  readonly instance: Instance;
  readonly record: InstanceRecord;
  readonly limits: Resources;
  /** Of the sentry and the gofer, which hold the open files of the sandbox. */
  pids?: readonly number[];
  /** The last measurement for a caller of `diskUsage`. */
  measured?: { readonly at: number; readonly usedBytes: Promise<number> };
}

export class LimitWatcher {
  readonly #ctx: RuntimeContext;
  readonly #byName = new Map<string, Watched>();
  readonly #byLayer = new Map<LayerId, Watched>();
  readonly #closing = new AbortController();
  readonly #disk: LayerWatch;
  readonly #sizes = new Map<LayerId, number>();
  /** One at a time, so that a server that finds many sandboxes does not read all their directories at once. */
  #measuring: Promise<void> = Promise.resolve();
  readonly #checking: Promise<void>;
  readonly #ended: (instance: Instance) => void;

  /** `ended` is called for each sandbox that was ended. */
  constructor(ctx: RuntimeContext, ended: (instance: Instance) => void) {
    this.#ctx = ctx;
    this.#ended = ended;
    const { clock, directory, report } = ctx;
    this.#disk = new LayerWatch({
      usage: (id, signal) => this.#usage(id, signal),
      room: () => freeSpaceOf(directory),
      clock,
      passed: async (id) => {
        const watched = this.#byLayer.get(id);
        if (watched === undefined) return;
        await this.#end(watched, REASONS.disk(watched.limits));
      },
      failed: (id, error) => report('the files of a sandbox could not be measured', { layer: id, error }),
    });
    this.#checking = this.#checkCgroups();
  }

  /** `limits` must include the defaults that protect the host. */
  add(instance: Instance, record: InstanceRecord, limits: Resources): void {
    const { clock, report } = this.#ctx;
    const watched: Watched = { instance, record, limits };
    this.#byName.set(record.container.id, watched);
    if (limits.diskMb === undefined) return;
    this.#byLayer.set(record.upper, watched);
    if (this.#ctx.diskProjects?.isEnforced(record.upper)) return;
    const measure = () => {
      if (this.#byLayer.get(record.upper) !== watched) return;
      this.#disk.watch(record.upper, (limits.diskMb ?? 0) * MIB);
      this.#measuring = this.#measuring
        .then(() => this.#subtractSealed(watched, limits.diskMb ?? 0))
        .catch((error: unknown) => report('the files of a sandbox could not be measured', { error }));
    };
    clock.sleep(FIRST_MEASURE_MS, this.#closing.signal).then(measure, () => {});
  }

  remove({ container, upper }: InstanceRecord): void {
    this.#byName.delete(container.id);
    this.#byLayer.delete(upper);
    this.#disk.unwatch(upper);
  }

  /** Undefined for a sandbox that is not watched. */
  async diskUsage({ upper }: InstanceRecord): Promise<DiskUsage | undefined> {
    const watched = this.#byLayer.get(upper);
    if (watched?.limits.diskMb === undefined) return undefined;
    const at = this.#ctx.clock.monotonic();
    if (watched.measured === undefined || at - watched.measured.at >= REUSE_USAGE_MS)
      watched.measured = { at, usedBytes: this.#usedBytes(watched) };
    return { usedBytes: await watched.measured.usedBytes, limitBytes: watched.limits.diskMb * MIB };
  }

  async #usedBytes(watched: Watched): Promise<number> {
    const counted = await this.#ctx.diskProjects?.usedBytes(watched.record, this.#closing.signal);
    if (counted !== undefined) return counted;
    const open = billableBytes(await this.#usage(watched.record.upper, this.#closing.signal));
    return open + (await this.#sealedBytes(watched));
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#checking, this.#measuring, this.#disk.stop()]);
  }

  /** Counts files, and deleted files that are still open. */
  async #usage(id: LayerId, signal: AbortSignal): Promise<Usage> {
    const named = await this.#ctx.layers.usage(id, signal);
    const watched = this.#byLayer.get(id);
    if (watched === undefined) return named;
    const { container, rootfs } = watched.record;
    const { mounts, runsc } = this.#ctx;
    // The root may have been unmounted by hand. The sandbox runs on, but the device of its files is unknown.
    if (mountsBelow(mounts.mountinfo(), rootfs).length === 0) return named;
    watched.pids ??= await runsc.processes(container);
    const held = await deletedFilesUsage(watched.pids, (await stat(mounts.hostPath(rootfs))).dev, signal);
    return { bytes: named.bytes + held.bytes, entries: named.entries + held.entries };
  }

  async #checkCgroups(): Promise<void> {
    const { cgroups, clock, report } = this.#ctx;
    const { signal } = this.#closing;
    while (!signal.aborted && cgroups !== null) {
      await clock.sleep(CHECK_EVERY_MS, signal).catch(() => {});
      for (const [name, watched] of this.#byName) {
        if (signal.aborted) return;
        const why = await exceededLimit(this.#ctx, name, watched.limits);
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
    await runsc.killProcesses(record.container, new AbortController().signal);
    this.#ended(instance);
    // Clients that wait for an answer of the sandbox get a reset.
    await network.reset(record.container.id);
    report('a sandbox was ended', { ...instance, why });
  }

  async #subtractSealed(watched: Watched, diskMb: number): Promise<void> {
    const { upper } = watched.record;
    const sealedBytes = await this.#sealedBytes(watched);
    if (sealedBytes === 0 || this.#byLayer.get(upper) !== watched) return;
    const limitBytes = diskMb * MIB;
    this.#disk.watch(upper, Math.max(limitBytes - sealedBytes, diskGraceBytes(limitBytes)));
  }

  /** The sealed layers of the sandbox count towards its limit; those of its template are shared and do not. */
  async #sealedBytes(watched: Watched): Promise<number> {
    const { lower, upper } = watched.record;
    const template = lower.at(-1)?.owner;
    let sealedBytes = 0;
    for (const { id, owner } of lower) {
      if (this.#closing.signal.aborted || this.#byLayer.get(upper) !== watched) break;
      if (owner !== template) sealedBytes += await this.#sizeOf(id);
    }
    return sealedBytes;
  }

  async #sizeOf(id: LayerId): Promise<number> {
    const known = this.#sizes.get(id);
    if (known !== undefined) return known;
    const size = billableBytes(await this.#ctx.layers.usage(id, this.#closing.signal));
    if (this.#sizes.size >= MAX_KNOWN_SIZES) this.#sizes.clear();
    this.#sizes.set(id, size);
    return size;
  }
}
