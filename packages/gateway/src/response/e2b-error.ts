/** The gateway's errors as E2B's clients know them: E2B's statuses, and bodies that repeat the status. */
import { bareSandboxId, factsOf, type SandboxId, type TorporError } from '@torpor/protocol';

export interface E2bErrorResponse {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

export function e2bErrorResponse(error: TorporError, sandboxId: SandboxId, port: number): E2bErrorResponse {
  const answer = (status: number, message: string, more: Readonly<Record<string, unknown>> = {}) => ({
    status,
    body: { sandboxId: bareSandboxId(sandboxId), message, ...more, code: status },
  });
  const { details } = error.toBody();
  switch (error.code) {
    case 'not_found':
    case 'killed':
    case 'lost':
    case 'conflict':
      return details?.['dispatched'] === undefined
        ? answer(factsOf(error.code).http, error.message)
        : answer(502, 'The sandbox was not found');
    // E2B's agent sends these errors, with exactly these two fields.
    case 'unauthenticated':
      return { status: 401, body: { code: 401, message: error.message } };
    case 'port_closed':
      return answer(502, 'The sandbox is running but port is not open', { port });
    case 'unreachable':
      if (details?.['port'] !== undefined) {
        return answer(502, 'The sandbox is running but port is not open', { port });
      }
      return details?.['dispatched'] === true || details?.['dispatched'] === 'unknown'
        ? answer(502, error.message)
        : answer(409, 'The sandbox is still transitioning');
    case 'transitioning':
      return answer(409, 'The sandbox is still transitioning');
    case 'capacity':
    case 'quota_exceeded':
      return answer(429, error.message);
    case 'internal':
      return answer(500, 'Something went wrong inside Torpor.');
    default:
      return answer(factsOf(error.code).http, error.message);
  }
}
