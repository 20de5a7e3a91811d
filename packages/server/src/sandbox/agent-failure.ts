/** What an agent's failures mean to a caller of the API. */
import { agentError } from '@torpor/envd';
import { type ErrorCode, type SandboxId, TorporError } from '@torpor/protocol';

/**
 * An agent lives beside hostile code, so that its word counts for its own sandbox only: it cannot say that the
 * caller's key is bad, nor that the server is broken.
 */
const MEANT: Partial<Readonly<Record<ErrorCode, ErrorCode>>> = {
  unauthenticated: 'invalid_request',
  internal: 'unreachable',
};

export function fromAgent(thrown: unknown, sandboxId: SandboxId): TorporError {
  const error = agentError(thrown);
  const code = MEANT[error.code] ?? error.code;
  if (code === error.code) return error.with({ sandboxId });
  const message =
    code === 'unreachable' ? `The agent of the sandbox failed: ${error.message}` : error.message;
  return new TorporError(code, message, { sandboxId, cause: thrown });
}
