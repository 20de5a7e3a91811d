/** Tells a sandbox whose memory cannot be captured from a temporary failure of captures on this machine. */
import { TorporError } from '@torpor/protocol';

const HINT = 'The sandbox runs on. Pause it with mode "files" to keep its files without its processes.';

/** The memory of the sandbox cannot be captured; its files can. */
export class CaptureFailure extends TorporError {
  /** Has the code and message of `error`. */
  constructor(error: TorporError) {
    const { code, message, ...fields } = error.with({ hint: HINT, details: { part: 'memory' } }).toBody();
    super(code, message, { ...fields, cause: error.cause });
  }
}

/**
 * The failure of a memory capture. A retryable failure stays as it is: another try may succeed. A timeout is a capture
 * failure although it is retryable, because a capture that is too slow is usually too slow again.
 */
export function asCaptureFailure(error: TorporError): TorporError {
  if (error.code !== 'timeout' && (error.retryable || error.code === 'storage_readonly')) return error;
  return new CaptureFailure(error);
}

/** Whether an operation ended with a capture failure. Its error comes from the database, which keeps the details only. */
export function endedByCaptureFailure(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && thrown.toBody().details?.['part'] === 'memory';
}
