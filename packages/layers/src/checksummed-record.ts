/**
 * The one format of records that prove themselves: a line of JSON, and a second line with the sha256 of the first. Layers,
 * manifests, parts of checkpoints and digests are all sealed in it, so a record that is torn or edited is never believed.
 */
import { sha256Of } from '@torpor/host';

/** The two lines, each with its line break. */
export function checksummedRecord(record: unknown): string {
  return checksummedJson(JSON.stringify(record));
}

/** As `sealedText`, of JSON that is written already. */
export function checksummedJson(json: string): string {
  return `${json}\n${JSON.stringify({ sha256: sha256Of(json) })}\n`;
}

/** The JSON of the first line when the text is exactly one sealed record; undefined when it is anything else. */
export function unwrapChecksummed(text: string): string | undefined {
  const [first = ''] = text.split('\n', 1);
  return first !== '' && text === checksummedJson(first) ? first : undefined;
}
