/**
 * The certificates of `--tls`: a certificate authority of this machine, created when it is first needed and kept in the
 * data directory, and a server certificate, renewed when its names change or before it expires.
 */
import { X509Certificate } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import {
  type CertificateWithKey,
  commonName,
  createAuthority,
  endOf,
  issueCertificate,
  type PairFiles,
  pairFiles,
  readPair,
  writePair,
} from '@torpor/certificates';
import type { Clock } from '@torpor/engine';

export interface AuthorityParts {
  readonly directory: string;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
}

export interface LocalCertificate extends CertificateWithKey {
  /** The authority's certificate, which clients have to trust. */
  readonly authorityFile: string;
}

const AUTHORITY_NAME = 'Torpor local authority';
const AUTHORITY_DAYS = 3_650;
/** Browsers accept no longer validity. */
const CERTIFICATE_DAYS = 397;
const RENEWED_BEFORE_MS = 30 * 24 * 3_600_000;

/** `domain` has no port; `host` is the address that the server listens on. */
export async function localCertificate(
  parts: AuthorityParts,
  domain: string,
  host: string,
): Promise<LocalCertificate> {
  await mkdir(parts.directory, { recursive: true, mode: 0o700 });
  const names = [domain, `*.${domain}`, 'localhost', '127.0.0.1', '::1'];
  if (isIP(host) === 4 && !names.includes(host) && host !== '0.0.0.0') names.push(host);
  const authority = await authorityFor(parts, names);
  const files = filesOf(parts, 'server');
  const kept = await readPair(files);
  const authorityFile = filesOf(parts, 'ca').cert;
  if (kept !== undefined && isGood(parts, kept, authority, names)) return { ...kept, authorityFile };
  const made = issueCertificate({ ...authority, subject: commonName(authority.cert) }, names, {
    now: parts.clock.now(),
    days: CERTIFICATE_DAYS,
    randomBytes: parts.randomBytes,
  });
  await writePair(files, made);
  return { ...made, authorityFile };
}

/** The kept authority if it may sign for all the names, else a new one. */
async function authorityFor(parts: AuthorityParts, names: readonly string[]): Promise<CertificateWithKey> {
  const files = filesOf(parts, 'ca');
  const kept = await readPair(files);
  const wanted = names.filter((name) => !name.startsWith('*.'));
  const covers = (await readFile(files.names, 'utf8').catch(() => '')).split('\n');
  const isUsable = kept !== undefined && endOf(kept) > parts.clock.now() + CERTIFICATE_DAYS * 24 * 3_600_000;
  if (isUsable && wanted.every((name) => covers.includes(name))) return kept;
  const { clock, randomBytes } = parts;
  const options = { called: AUTHORITY_NAME, names: wanted };
  const made = createAuthority(options, { now: clock.now(), days: AUTHORITY_DAYS, randomBytes });
  await writePair(files, made);
  await writeFile(files.names, wanted.join('\n'), { mode: 0o600 });
  return made;
}

function isGood(
  { clock }: AuthorityParts,
  kept: CertificateWithKey,
  authority: CertificateWithKey,
  names: readonly string[],
): boolean {
  const certificate = new X509Certificate(kept.cert);
  const issuer = new X509Certificate(authority.cert);
  const isFor = (name: string) =>
    (isIP(name) === 0 ? certificate.checkHost(name.replace('*', 'x')) : certificate.checkIP(name)) !==
    undefined;
  return (
    certificate.checkIssued(issuer) &&
    certificate.verify(issuer.publicKey) &&
    endOf(kept) > clock.now() + RENEWED_BEFORE_MS &&
    names.every(isFor)
  );
}

interface Files extends PairFiles {
  readonly names: string;
}

function filesOf({ directory }: AuthorityParts, stem: string): Files {
  return { ...pairFiles(directory, stem), names: join(directory, `${stem}-names`) };
}
