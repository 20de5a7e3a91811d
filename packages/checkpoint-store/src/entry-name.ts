/**
 * File names as text, without loss: two names never become one text.
 *
 * A name is bytes. Most are UTF-8 and stand as they are; each byte that is not part of a UTF-8 character
 * becomes the lone surrogate U+DC00 + byte, which no UTF-8 text contains and JSON can carry.
 */
import { isUtf8 } from 'node:buffer';

const ESCAPE = 0xdc00;
const LONGEST_CHARACTER = 4;

export function nameToText(name: Buffer): string {
  if (isUtf8(name)) return name.toString('utf8');
  let text = '';
  for (let at = 0; at < name.length; ) {
    const length = characterLength(name, at);
    if (length === 0) text += String.fromCharCode(ESCAPE + name.readUInt8(at));
    else text += name.toString('utf8', at, at + length);
    at += Math.max(length, 1);
  }
  return text;
}

/** The bytes of the one character that starts here, or 0 when none does. */
function characterLength(name: Buffer, at: number): number {
  for (let length = 1; length <= LONGEST_CHARACTER && at + length <= name.length; length++) {
    if (isUtf8(name.subarray(at, at + length))) return length;
  }
  return 0;
}
