/** Some of the requested forks could not be created. */
import { TorporError } from '@torpor/protocol';
import type { ApiError } from '../errors.ts';
import type { Sandbox } from './sandbox.ts';

/** Has the code and message of the first failure. The forks in `sandboxes` run; the caller uses or kills them. */
export class PartialForkError extends TorporError {
  readonly sandboxes: readonly Sandbox[];
  readonly errors: readonly ApiError[];

  constructor(sandboxes: readonly Sandbox[], errors: readonly [ApiError, ...ApiError[]]) {
    const [first] = errors;
    const { code, message, hint, retryable } = first;
    const asked = sandboxes.length + errors.length;
    super(code, `${errors.length} of ${asked} forks could not be created: ${message}`, {
      hint,
      retryable,
      cause: first,
    });
    Object.defineProperty(this, 'name', { value: 'PartialForkError', configurable: true });
    this.sandboxes = sandboxes;
    this.errors = errors;
  }
}
