/** The error for a command whose sandbox went away. The command may have run, so clients must not retry it blindly. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';
import { hasChangedSince, type SandboxConnection } from './sandbox-connection.ts';

export async function interruptedCommandError(
  { engine }: RouteContext,
  org: string,
  id: SandboxId,
  { generation }: Pick<SandboxConnection, 'generation'>,
  thrown: unknown,
): Promise<TorporError> {
  const error = fromAgentError(thrown, id);
  if (error.code !== 'unreachable') return error;
  const moved = await hasChangedSince(engine, org, id, generation).catch(() => false);
  const message = moved
    ? 'The sandbox was paused, rolled back or ended while the command ran.'
    : 'The connection to the sandbox broke while the command ran.';
  return new TorporError(moved ? 'transitioning' : 'unreachable', message, {
    sandboxId: id,
    retryable: false,
    hint: 'The command may have run, wholly or in part. Check before you run it again.',
    details: { dispatched: true },
    cause: error,
  });
}
