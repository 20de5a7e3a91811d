/** The filesystems of a running sandbox. Asking never wakes it: the engine refuses for any other state. */
import type { DriveView, SandboxId } from '@torpor/protocol';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';
import { connectToAgent } from './sandbox-connection.ts';

/** The root is the one filesystem that every runtime gives a sandbox, and every agent reports. */
export async function drivesOf(
  { engine }: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<DriveView[]> {
  const agent = connectToAgent(await engine.agent(org, id));
  try {
    const { diskTotal, diskUsed } = await agent.metrics({ signal });
    const freeBytes = Math.max(0, diskTotal - diskUsed);
    return [{ path: '/', totalBytes: diskTotal, usedBytes: diskUsed, freeBytes }];
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    agent.close();
  }
}
