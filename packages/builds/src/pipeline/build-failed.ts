/**
 * The build failed and the failure is recorded already: the worker that catches this error writes nothing more (R12).
 */
import { TorporError } from '@torpor/protocol';

export class BuildFailed extends TorporError {
  readonly debugId: string;

  constructor(debugId: string, userMessage: string, cause: unknown) {
    super('conflict', userMessage, { cause, details: { debug_id: debugId } });
    this.debugId = debugId;
  }
}

/** A message for the user, chosen by the code of the error and never by its text. */
export function friendly(thrown: unknown): string {
  if (!(thrown instanceof TorporError)) return 'Something went wrong inside Torpor.';
  switch (thrown.code) {
    case 'timeout':
      return `It took too long. ${thrown.message}`;
    case 'quota_exceeded':
      return `A limit was reached, try again later. ${thrown.message}`;
    case 'unreachable':
    case 'lost':
    case 'killed':
    case 'capacity':
    case 'not_found':
      return `The sandbox could not be used. ${thrown.message}`;
    case 'internal':
      return 'Something went wrong inside Torpor.';
    default:
      return thrown.message;
  }
}
