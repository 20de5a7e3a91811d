/** What an agent's failures mean to a caller of the API. */
import { agentError } from '@torpor/envd';
import { type ErrorCode, type SandboxId, TorporError } from '@torpor/protocol';

/**
 * An agent lives beside hostile code, so that its word counts for its own sandbox only: it cannot say that the
 * caller's key is bad (what it refused is the token that we brought), nor that the server is broken.
 */
const REWORDED: Partial<Readonly<Record<ErrorCode, (said: string) => string>>> = {
  unauthenticated: () => 'The agent of the sandbox does not let the server in.',
  internal: (said) => `The agent of the sandbox failed: ${said}`,
};

export function fromAgentError(thrown: unknown, sandboxId: SandboxId): TorporError {
  const error = agentError(thrown);
  const words = REWORDED[error.code];
  if (words === undefined) return error.with({ sandboxId });
  return new TorporError('unreachable', words(error.message), { sandboxId, cause: thrown });
}
