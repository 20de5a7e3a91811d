/**
 * A small file's text, read without Node's threads: they take ten times as long for it, and more while a sandbox
 * wakes. For what was just written or lies in memory, on a way that somebody waits on.
 */
import { readFileSync } from 'node:fs';
import { isMissing } from '@torpor/host';

/** Undefined when there is none. */
export function readTextSync(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}
