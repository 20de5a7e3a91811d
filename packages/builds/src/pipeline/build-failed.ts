/** A build that failed and has been recorded as failed: whoever catches it has nothing left to write (R12). */
import { TorporError } from '@torpor/protocol';

export class BuildFailed extends TorporError {
  readonly debugId: string;

  constructor(debugId: string, friendly: string, cause: unknown) {
    super('conflict', friendly, { cause, details: { debug_id: debugId } });
    this.debugId = debugId;
  }
}

/** What a person can do something with, by the kind of the failure and never by its text. */
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
