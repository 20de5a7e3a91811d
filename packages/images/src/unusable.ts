import { TorporError } from '@torpor/protocol';

/** The error for an image whose content is at fault. */
export function unusable(why: string, cause?: unknown): TorporError {
  return new TorporError('invalid_request', `The image cannot be used: ${why}.`, { cause });
}
