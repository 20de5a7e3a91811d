/** Keys of objects: parts of letters, digits, `.`, `_` and `-`, separated by `/`. */
import { TorporError } from '@torpor/protocol';

const KEY = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;
const LONGEST = 512;

/** The same keys are valid in every store, and none leads out of the directory of a directory store. */
export function checkedKey(key: string): string {
  if (key.length <= LONGEST && KEY.test(key)) return key;
  throw new TorporError('invalid_request', `"${key}" is not the key of an object.`);
}
