/** Tells a sandbox whose memory cannot be captured from a temporary failure of captures on this machine. */
import { TorporError } from '@torpor/protocol';

const HINT = 'The sandbox runs on. Pause it with mode "files" to keep its files without its processes.';

/**
 * Marks the failure of a memory capture. A retryable failure is not marked: another try may succeed. A timeout is
 * marked although it is retryable, because a capture that is too slow is usually too slow again.
 */
export function asCaptureFailure(error: TorporError): TorporError {
  if (error.code !== 'timeout' && (error.retryable || error.code === 'storage_readonly')) return error;
  return error.with({ hint: HINT, details: { part: 'memory' } });
}

/** What was thrown, if it is a marked failure of a memory capture. */
export function captureFailure(thrown: unknown): TorporError | undefined {
  if (!(thrown instanceof TorporError)) return undefined;
  return thrown.toBody().details?.['part'] === 'memory' ? thrown : undefined;
}
