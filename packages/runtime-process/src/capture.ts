/** Makes a checkpoint of the workspace of an instance. */
import type { Captured, Instance, Staging } from '@torpor/engine';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { workspaceIn } from './checkpoint-content.ts';
import { needsOf } from './checkpoint-needs.ts';
import { killAll, stopAll } from './processes/process-signals.ts';
import { liveInstance, processesOf, type RuntimeContext } from './runtime-context.ts';
import { detectsMappedWrites, dropBaseline, readBaseline, writeBaseline } from './workspace/baseline.ts';
import { captureWorkspace, syncFileSystem } from './workspace/workspace.ts';

/** The instance is frozen and stays frozen, also after a failure. */
export async function captureInstance(
  ctx: RuntimeContext,
  instance: Instance,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const { state, processes } = await liveInstance(ctx, instance);
  if (state !== 'frozen') throw new TorporError('conflict', 'Only a frozen instance can be captured.');
  await stopAll(processes, signal);
  const paths = ctx.directory.paths(instance);
  // Without the sync a later write through a mapping might not change a file's times, so no baseline is written.
  const synced = await syncFileSystem(paths.home, signal);
  const next = await captureWorkspace(paths.home, staging, await readBaseline(paths.baseline), signal);
  if (synced && (await detectsMappedWrites(paths.directory))) await writeBaseline(paths.captured, next);
  return capturedFiles(null);
}

/** Captures the files that a dead instance has left. */
export async function captureRemains(
  ctx: RuntimeContext,
  instance: Instance,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const paths = ctx.directory.paths(instance);
  // The agent is dead, but processes that it started may still write.
  await killAll(await processesOf(ctx, instance), signal);
  await captureWorkspace(paths.home, staging, await readBaseline(paths.baseline), signal);
  return capturedFiles(null);
}

/** Makes the last capture the baseline of the next one if the last capture was sealed. */
export async function adoptBaseline(
  { directory, sealedPath }: RuntimeContext,
  instance: Instance,
  sealed: CheckpointId | null,
): Promise<void> {
  const paths = directory.paths(instance);
  const latest = sealed === null || sealedPath === null ? undefined : await readBaseline(paths.captured);
  if (latest !== undefined && latest.checkpointId === sealed && sealedPath !== null) {
    await writeBaseline(paths.baseline, { ...latest, workspace: workspaceIn(sealedPath(sealed)) });
  }
  await dropBaseline(paths.captured);
}

export function capturedFiles(template: string | null): Captured {
  return {
    parts: { files: true, memory: false },
    needs: needsOf(template),
    // Checkpoints share files by hard links, so deleting one checkpoint leaves the others whole.
    dependsOn: [],
    external: null,
  };
}
