/**
 * The checksummed record: a line of JSON, and a second line with the sha256 of the first. Seals of layers, claims, manifests,
 * part records and digests are written in this format, so that a torn or edited record is noticed.
 */
import { sha256Of } from '@torpor/host';

/** The two lines, each with its line break. */
export function checksummedRecord(record: unknown): string {
  return checksummedJson(JSON.stringify(record));
}

/** Like `checksummedRecord`, for a value that is JSON text already. */
export function checksummedJson(json: string): string {
  return `${json}\n${JSON.stringify({ sha256: sha256Of(json) })}\n`;
}

/** The JSON text of a checksummed record. Undefined when the checksum does not match or the text is anything else. */
export function unwrapChecksummed(text: string): string | undefined {
  const [first = ''] = text.split('\n', 1);
  return first !== '' && text === checksummedJson(first) ? first : undefined;
}
