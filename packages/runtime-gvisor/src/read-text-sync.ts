import { readFileSync } from 'node:fs';
import { isMissing } from '@torpor/host';

/**
 * Reads a small file on this thread; undefined when it is missing. For files that were just written or lie in memory, on
 * a path that a caller waits for: through Node's thread pool a read takes ten times as long, and longer while a sandbox
 * wakes.
 */
export function readTextSync(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}
