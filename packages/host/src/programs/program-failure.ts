import { TorporError } from '@torpor/protocol';

/** The longest part of stderr that an error message repeats. */
const MAX_MESSAGE = 2_000;

/** A program that ran and ended with an exit status that its caller does not accept. */
export class ProgramFailure extends TorporError {
  /** Null when a signal ended the program. */
  readonly status: number | null;
  readonly stderr: string;

  constructor(program: string, args: readonly string[], status: number | null, stderr: string) {
    const message = stderr.trim().slice(0, MAX_MESSAGE);
    const ending = status === null ? 'a signal ended it' : `exit status ${status}`;
    super('internal', `${program} failed: ${message === '' ? ending : message}`, {
      details: { program, args, status },
    });
    this.status = status;
    this.stderr = message;
  }
}
