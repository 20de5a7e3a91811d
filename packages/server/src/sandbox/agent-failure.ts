/** Converts errors of an agent into errors for the caller of the API. */
import { agentError } from '@torpor/envd';
import { type ErrorCode, type SandboxId, TorporError } from '@torpor/protocol';

/**
 * An agent runs beside untrusted code, so its errors speak only for its own sandbox. It cannot say that the caller's key
 * is invalid (it refused the server's token), nor that the server is broken.
 */
const REWORDED: Partial<Readonly<Record<ErrorCode, (message: string) => string>>> = {
  unauthenticated: () => "The sandbox's agent refused the server's token.",
  internal: (message) => `The sandbox's agent failed: ${message}`,
};

export function fromAgentError(thrown: unknown, sandboxId: SandboxId): TorporError {
  const error = agentError(thrown);
  const reword = REWORDED[error.code];
  if (reword === undefined) return error.with({ sandboxId });
  return new TorporError('unreachable', reword(error.message), { sandboxId, cause: thrown });
}
