/**
 * What a seal asks of an instance, in this order: to write dirty files back, to freeze, and to be captured for a checkpoint:
 * its memory, if the caller wants it, and its upper layer. A copy of the upper layer is sealed when the instance may stay in
 * memory (docs/architecture.md, "Warm sleep"). Otherwise the upper layer itself is sealed.
 */
import { access } from 'node:fs/promises';
import type { Captured, Instance, LayerReference, Staging, Warmth } from '@torpor/engine';
import { allDone } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { describeCapture, writeSecrets } from './checkpoint-needs.ts';
import type { WrittenImage } from './image/images.ts';
import type { InstanceRecord } from './instance/instance-files.ts';
import { layersOf, type PageTarget, packMemory, readKnownLayers } from './pack-memory.ts';
import type { RuntimeContext } from './runtime-context.ts';
import { noSuchInstance } from './start.ts';
import { whyNotCopied, whyNotWarm } from './warm/warm-bounds.ts';

/** A container that runs or is frozen, and the record of its instance. */
interface LiveInstance {
  readonly record: InstanceRecord;
  readonly state: 'running' | 'frozen';
}

export async function liveInstance(
  { files, runsc }: RuntimeContext,
  instance: Instance,
): Promise<LiveInstance> {
  const record = files.read(instance);
  if (record === undefined) throw noSuchInstance(instance);
  const { is } = await runsc.recordedState(record.container.id);
  if (is !== 'running' && is !== 'frozen') throw noSuchInstance(instance);
  return { record, state: is };
}

/** Does what a freeze and a capture would otherwise wait for. The instance runs on. */
export async function presyncInstance(
  ctx: RuntimeContext,
  instance: Instance,
  signal: AbortSignal,
): Promise<void> {
  const record = ctx.files.read(instance);
  if (record === undefined) return;
  // A capture follows, usually of memory. `thaw` ends what is prepared, and so does a capture of files alone.
  ctx.runsc.prepareImage(record.container);
  // Of such an instance a copy of the upper layer is sealed. Only the copy is synced, so syncing the original is of no use.
  if ((await whyStaysCold(ctx, record, signal)) === null) return;
  await ctx.layers.presync(record.upper, signal);
}

/** Resets the connections of a running instance and stops its processes. */
export async function freezeInstance(
  ctx: RuntimeContext,
  instance: Instance,
  signal: AbortSignal,
): Promise<void> {
  const { record } = await liveInstance(ctx, instance);
  const { network, runsc, faults } = ctx;
  const { id } = record.container;
  // Runs a program. The capture waits for its end, and reports when it fails again.
  network.hold(id).catch(() => {});
  try {
    // The programs still run, so they learn of the resets and close their ends. A program may open another connection
    // before the freeze; the capture resets it.
    await network.resetOpen(id);
    await runsc.freeze(record.container, signal, () => faults.pass('runtime.freezing'));
  } catch (thrown) {
    await network.release(id);
    throw thrown;
  }
}

export interface InstanceCapture {
  readonly record: InstanceRecord;
  readonly captured: Captured;
  /** Whether the instance may be kept in memory after the commit. */
  readonly warmth: Warmth;
}

/**
 * Captures a frozen instance: its memory, when `mode` asks for it, and its files. The instance stays frozen whatever
 * happens here. The engine seals the checkpoint from what this returns, and then commits it.
 */
export async function captureInstance(
  ctx: RuntimeContext,
  instance: Instance,
  mode: 'memory' | 'files',
  staging: Staging,
  signal: AbortSignal,
): Promise<InstanceCapture> {
  const { record, state } = await liveInstance(ctx, instance);
  if (state !== 'frozen') throw new TorporError('conflict', 'Only a frozen instance can be captured.');
  if (mode === 'files') {
    await ctx.runsc.cancelImage(record.container.id);
    const layers = await sealFiles(ctx, instance, record, staging, NO_PAGES, signal);
    const captured = describeCapture(ctx, record, layers, staging.checkpointId, null);
    return { record, captured, warmth: { warm: false, why: 'only its files were kept' } };
  }
  // The files are measured while the memory is written, and copied only after that: the sentry writes dirty files back
  // before it writes its memory.
  const own = await ctx.layers.create();
  try {
    const [image, why, known] = await allDone(
      writeMemory(ctx, record, staging, signal),
      whyStaysCold(ctx, record, signal),
      readKnownLayers(ctx, record.pages),
    );
    const target: PageTarget = { own, known };
    const [pages, { layers, warmth }] = await allDone(
      packMemory(ctx, image, target, staging, signal),
      keepFiles(ctx, instance, record, staging, { why, pages: layersOf(target) }, signal),
    );
    if (why === null) cutOff(ctx, record);
    const captured = describeCapture(ctx, record, layers, staging.checkpointId, pages);
    return { record, captured, warmth };
  } catch (thrown) {
    // What cannot be removed now is removed with the checkpoint, or when the next server starts.
    await Promise.allSettled([ctx.images.evict(staging.checkpointId), ctx.layers.remove(own)]);
    throw thrown;
  }
}

/** A capture of files alone claims no page layers. */
const NO_PAGES: readonly LayerId[] = [];

/**
 * Sets the network policy of a frozen instance that may be kept to "nothing is allowed", and removes the rule of the firewall
 * that refused new connections. Removing the rule starts a program. Returns at once: the program runs while the checkpoint is
 * sealed, so that neither a snapshot nor a wake waits for it. A later call for the same network waits. `thaw` sets the policy
 * of the sandbox again.
 */
function cutOff({ network, report }: RuntimeContext, { container }: InstanceRecord): void {
  network
    .reopen(container.id, { mode: 'none' })
    .catch((error: unknown) =>
      report('a frozen sandbox still refuses new connections', { container: container.id, error }),
    );
}

/** Why the instance cannot be kept in memory after this capture; null when it can. Never rejects. */
async function whyStaysCold(
  ctx: RuntimeContext,
  record: InstanceRecord,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    const why = whyNotWarm(ctx, record, await ctx.runsc.memoryBytes(record.container.id));
    if (why !== null) return why;
    const { layers } = ctx;
    return whyNotCopied(await layers.usage(record.upper, signal), await layers.sharesBlocks());
  } catch (thrown) {
    return notCopied(thrown);
  }
}

function notCopied(thrown: unknown): string {
  return `its files could not be copied: ${TorporError.from(thrown).message}`;
}

/** Seals a copy of the upper layer, or the upper layer itself. */
async function keepFiles(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  staging: Staging,
  { why: whyCold, pages }: { readonly why: string | null; readonly pages: readonly LayerId[] },
  signal: AbortSignal,
): Promise<{ readonly layers: LayerReference[]; readonly warmth: Warmth }> {
  let why = whyCold;
  if (why === null) {
    try {
      return {
        layers: await sealCopy(ctx, instance, record, staging, pages, signal),
        warmth: { warm: true },
      };
    } catch (thrown) {
      signal.throwIfAborted();
      why = notCopied(thrown);
    }
  }
  const layers = await sealFiles(ctx, instance, record, staging, pages, signal);
  return { layers, warmth: { warm: false, why } };
}

/** How often connections that are still open are reset, and how long to wait between two tries. */
const RESET_TRIES = 10;
const RESET_RETRY_MS = 20;

/**
 * Resets the connections to the outside (`connection-resets.ts` of the network says why), and has the sentry write the memory
 * image, unpacked.
 *
 * The kernel charges the image to the control group of the sandbox. So this lifts the limits of the sandbox. They are set
 * again when the sandbox is thawed or kept in memory.
 */
export async function writeMemory(
  ctx: RuntimeContext,
  { container, credential }: Pick<InstanceRecord, 'container' | 'credential'>,
  { checkpointId, path }: Staging,
  signal: AbortSignal,
): Promise<WrittenImage> {
  const { images, runsc, cgroups } = ctx;
  const [bytes] = await allDone(
    runsc.memoryBytes(container.id),
    resetConnections(ctx, container.id, signal),
    writeSecrets(path, { credential }),
    cgroups?.limit(container.id, {}),
  );
  return images.write({ id: checkpointId, bytes }, (image) => runsc.writeImage(container, image, signal));
}

async function resetConnections(
  { network, clock }: RuntimeContext,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    const open = await network.reset(name);
    if (open.length === 0) return;
    if (tries === RESET_TRIES) {
      throw new TorporError('conflict', 'The sandbox has connections that could not be ended.', {
        details: { connections: open.slice(0, 10) },
      });
    }
    await clock.sleep(RESET_RETRY_MS, signal);
  }
}

/**
 * Seals the upper layer of an instance in place. First the record of the instance names the checkpoint (`capturedFor`). If the
 * checkpoint is not committed, `thaw` finds the name there and makes the layer writable again.
 */
async function sealFiles(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  { checkpointId: checkpoint, path }: Staging,
  pages: readonly LayerId[],
  signal: AbortSignal,
): Promise<LayerReference[]> {
  await requireStaging(path);
  await ctx.files.write(instance, { ...record, capturedFor: { checkpoint, sealed: 'upper' } });
  await claimStack(ctx, record, record.upper, checkpoint, pages);
  return sealTop(ctx, record, record.upper, checkpoint, signal);
}

/**
 * Seals a copy of the upper layer. The instance's record names the checkpoint last: by then the memory and the copy are
 * complete. After a failure the copy is removed.
 */
async function sealCopy(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  { checkpointId: checkpoint, path }: Staging,
  pages: readonly LayerId[],
  signal: AbortSignal,
): Promise<LayerReference[]> {
  const { layers, files } = ctx;
  await requireStaging(path);
  const copy = await layers.create();
  try {
    await allDone(
      claimStack(ctx, record, copy, checkpoint, pages),
      layers.copyInto(copy, record.upper, signal),
    );
    const references = await sealTop(ctx, record, copy, checkpoint, signal);
    await ctx.diskProjects?.copied(record.upper, copy);
    await files.write(instance, { ...record, capturedFor: { checkpoint, sealed: 'copy' } });
    return references;
  } catch (thrown) {
    await layers.remove(copy);
    throw thrown;
  }
}

/** Without its staging directory a checkpoint cannot be sealed, and must not claim anything. */
function requireStaging(path: string): Promise<void> {
  return mapWriteErrors(path, () => access(path));
}

/**
 * The claim is written before the top layer is sealed. After a crash, every sealed layer of files can be traced to a
 * checkpoint. It names every page layer that the memory may refer to, because the memory is packed meanwhile.
 */
function claimStack(
  { layerStore }: RuntimeContext,
  record: InstanceRecord,
  top: LayerId,
  checkpoint: CheckpointId,
  pages: readonly LayerId[],
): Promise<void> {
  const { merged, runsc, tools } = record;
  const own: LayerId[] = merged === null ? [top] : [top, merged];
  const layers = [...own, ...layersBelow(record).map(({ id }) => id), ...pages];
  return layerStore.claim(checkpoint, { layers, runsc, tools });
}

/**
 * The layers below those that the checkpoint owns. When there is a merged layer, it replaces all of them but the last, which
 * is the template's.
 */
function layersBelow({ lower, merged }: InstanceRecord): readonly LayerReference[] {
  return merged === null ? lower : lower.slice(-1);
}

/** Seals the top layer of a checkpoint, which is claimed, and returns the stack of the checkpoint. */
async function sealTop(
  { layers }: RuntimeContext,
  record: InstanceRecord,
  top: LayerId,
  checkpoint: CheckpointId,
  signal: AbortSignal,
): Promise<LayerReference[]> {
  const { merged } = record;
  const sealed = await layers.seal(top, signal);
  const sealedTop: LayerReference = { id: top, nonce: sealed.nonce, owner: checkpoint };
  if (merged === null) return [sealedTop, ...layersBelow(record)];
  const { nonce } = await layers.inspect(merged);
  return [sealedTop, { id: merged, nonce, owner: checkpoint }, ...layersBelow(record)];
}

/** Captures the files of an instance whose container is dead: its upper layer, without memory. */
export async function captureDeadInstance(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  await ctx.runsc.killProcesses(record.container, signal);
  await ctx.layers.unmount(record.rootfs);
  const layers = await sealFiles(ctx, instance, record, staging, NO_PAGES, signal);
  return describeCapture(ctx, record, layers, staging.checkpointId, null);
}
