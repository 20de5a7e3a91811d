/** A certificate and its key in two files that only the user of the server can read. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import type { CertificateWithKey } from './certificate.ts';

export interface PairFiles {
  readonly cert: string;
  readonly key: string;
}

export function pairFiles(directory: string, stem: string): PairFiles {
  return { cert: join(directory, `${stem}.pem`), key: join(directory, `${stem}-key.pem`) };
}

/** Undefined when there is no pair yet. */
export async function readPair({ cert, key }: PairFiles): Promise<CertificateWithKey | undefined> {
  try {
    return { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') };
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new TorporError('storage_readonly', `The certificate ${cert} cannot be read.`, { cause: thrown });
  }
}

/** Writes the key first: after a crash in between, the old certificate does not match the key and is replaced. */
export async function writePair(files: PairFiles, { cert, key }: CertificateWithKey): Promise<void> {
  for (const [file, text] of [
    [files.key, key],
    [files.cert, cert],
  ] as const) {
    await writeFile(`${file}.new`, text, { mode: 0o600 });
    await rename(`${file}.new`, file);
  }
}
