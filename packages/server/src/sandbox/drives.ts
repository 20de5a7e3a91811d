/** The filesystems of a running sandbox. Asking never wakes it: the engine refuses for any other state. */
import type { DriveView, SandboxId } from '@torpor/protocol';
import type { RouteParts } from '../parts.ts';
import { fromAgent } from './agent-failure.ts';
import { connect } from './awake.ts';

/** The root is the one filesystem that every runtime gives a sandbox, and every agent reports. */
export async function drivesOf(
  { engine }: RouteParts,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<DriveView[]> {
  const agent = connect(await engine.agent(org, id));
  try {
    const { diskTotal, diskUsed } = await agent.metrics({ signal });
    const freeBytes = Math.max(0, diskTotal - diskUsed);
    return [{ path: '/', totalBytes: diskTotal, usedBytes: diskUsed, freeBytes }];
  } catch (thrown) {
    throw fromAgent(thrown, id);
  } finally {
    agent.close();
  }
}
