/** A certificate of a public authority, in two files that another program renews. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { CertificateWithKey } from '@torpor/certificates';
import type { Clock, Report } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export interface CertificateFiles {
  /** The certificate and the intermediate ones after it, as PEM. */
  readonly cert: string;
  readonly key: string;
}

/** Reads the pair, and refuses one that does not belong together or has expired. */
export async function readCertificateFiles(
  files: CertificateFiles,
  now: number,
): Promise<CertificateWithKey> {
  const read = (path: string) =>
    readFile(path, 'utf8').catch((cause: unknown) => {
      throw new TorporError('invalid_request', `${path} cannot be read.`, { cause });
    });
  const [cert, key] = [await read(files.cert), await read(files.key)];
  try {
    const certificate = new X509Certificate(cert);
    if (!certificate.checkPrivateKey(createPrivateKey(key))) throw new Error('they do not belong together');
    if (certificate.validToDate.getTime() <= now) throw new Error(`it expired on ${certificate.validTo}`);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TorporError('invalid_request', `${files.cert} and ${files.key} cannot be used: ${why}.`, {
      hint: 'They must be PEM: the certificate with its chain, and the private key of the certificate.',
      cause,
    });
  }
  return { cert, key };
}

export interface CertificateWatch {
  readonly files: CertificateFiles;
  readonly current: CertificateWithKey;
  readonly clock: Clock;
  readonly everyMs: number;
  readonly onChange: (renewed: CertificateWithKey) => void;
  readonly report: Report;
  readonly signal: AbortSignal;
}

/**
 * Reads the files again and again until the signal fires. Notifications of the file system would miss links that are
 * replaced, which is how renewals are usually done. A pair that cannot be used, such as one of which only the first file is
 * replaced yet, is reported, and the current one stays.
 */
export async function watchCertificateFiles(watch: CertificateWatch): Promise<void> {
  const { files, clock, everyMs, onChange, report, signal } = watch;
  let { current } = watch;
  while (!signal.aborted) {
    await clock.sleep(everyMs, signal).catch(() => {});
    if (signal.aborted) return;
    try {
      const read = await readCertificateFiles(files, clock.now());
      if (read.cert === current.cert && read.key === current.key) continue;
      onChange(read);
      current = read;
      report('the certificate was renewed', { file: files.cert });
    } catch (error) {
      report('the certificate could not be read again', { file: files.cert, error });
    }
  }
}
