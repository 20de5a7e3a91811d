/** Some of the forks that were asked for could not be made. */
import { TorporError } from '@torpor/protocol';
import type { ApiError } from '../errors.ts';
import type { Sandbox } from './sandbox.ts';

/** Tells why the first one failed. Those that were made run, and are the caller's to use or to kill. */
export class PartialForkError extends TorporError {
  readonly sandboxes: readonly Sandbox[];
  readonly errors: readonly ApiError[];

  constructor(sandboxes: readonly Sandbox[], errors: readonly [ApiError, ...ApiError[]]) {
    const [first] = errors;
    const { code, message, hint, retryable } = first;
    const asked = sandboxes.length + errors.length;
    super(code, `${errors.length} of ${asked} forks could not be made: ${message}`, {
      hint,
      retryable,
      cause: first,
    });
    Object.defineProperty(this, 'name', { value: 'PartialForkError', configurable: true });
    this.sandboxes = sandboxes;
    this.errors = errors;
  }
}
