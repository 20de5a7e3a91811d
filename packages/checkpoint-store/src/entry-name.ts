/**
 * Writes file names as text without loss: two different names never become the same text.
 *
 * A name is bytes. Most names are UTF-8 and stay as they are. Each byte that is not part of a UTF-8 character becomes the lone
 * surrogate U+DC00 + byte, which no UTF-8 text contains and which JSON can hold.
 */
import { isUtf8 } from 'node:buffer';

const ESCAPE = 0xdc00;
const MAX_CHARACTER_BYTES = 4;

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

/** The name that `nameToText` has written as this text. */
export function textToName(text: string): Buffer {
  const parts = [...text].map((character) => {
    const code = character.codePointAt(0) ?? 0;
    return code >= ESCAPE && code <= ESCAPE + 0xff ? Buffer.from([code - ESCAPE]) : Buffer.from(character);
  });
  return Buffer.concat(parts);
}

/** The length in bytes of the character that starts here; 0 when none does. */
function characterLength(name: Buffer, at: number): number {
  for (let length = 1; length <= MAX_CHARACTER_BYTES && at + length <= name.length; length++) {
    if (isUtf8(name.subarray(at, at + length))) return length;
  }
  return 0;
}
