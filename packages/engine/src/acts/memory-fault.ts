/** Tells a sandbox whose memory cannot be captured from a machine on which that fails at the moment. */
import { TorporError } from '@torpor/protocol';

const HINT = 'The sandbox runs on. Pause it with mode "files" to keep its files without its processes.';

/**
 * Marks the failure of a memory capture. Failures that may pass stay as they are: another try may succeed. A timeout is
 * marked although it may pass, because a capture that is too slow is usually too slow again.
 */
export function asMemoryFault(error: TorporError): TorporError {
  if (error.code !== 'timeout' && (error.retryable || error.code === 'storage_readonly')) return error;
  return error.with({ hint: HINT, details: { part: 'memory' } });
}

/** The failure of a memory capture, if that is what was thrown. */
export function memoryFault(thrown: unknown): TorporError | undefined {
  if (!(thrown instanceof TorporError)) return undefined;
  return thrown.toBody().details?.['part'] === 'memory' ? thrown : undefined;
}
