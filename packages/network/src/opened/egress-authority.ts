/**
 * The certificate authority of the egress. Sandboxes with secrets trust it, and nothing else does. Its key stays in the
 * data directory. It is kept, because programs that were paused with their memory have read its certificate.
 */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import {
  type CertificateWithKey,
  commonName,
  createAuthority,
  endOf,
  issueCertificate,
  pairFiles,
  readPair,
  subjectHash,
  writePair,
} from '@torpor/certificates';
import type { Clock } from '@torpor/engine';

const DAY_MS = 24 * 3_600_000;
const AUTHORITY_DAYS = 3_650;
const CERTIFICATE_DAYS = 60;
const RENEWED_BEFORE_MS = 7 * DAY_MS;
/** A host with `*.` covers any number of names. */
const MAX_NAMES = 512;

/** What a sandbox must trust. */
export interface TrustedAuthority {
  /** The certificate, as PEM. */
  readonly certificate: string;
  /** The name under which OpenSSL looks for it in a directory. */
  readonly hash: string;
}

export class EgressAuthority {
  readonly #directory: string;
  readonly #clock: Clock;
  #pair: Promise<CertificateWithKey> | undefined;
  /** Least recently made first. */
  readonly #contexts = new Map<string, { readonly context: SecureContext; readonly until: number }>();

  constructor(dataDir: string, clock: Clock) {
    this.#directory = join(dataDir, 'tls');
    this.#clock = clock;
  }

  async trusted(): Promise<TrustedAuthority> {
    const { cert } = await this.#authority();
    return { certificate: cert, hash: subjectHash(cert) };
  }

  /** For a TLS server of this name. */
  async contextFor(name: string): Promise<SecureContext> {
    const now = this.#clock.now();
    const known = this.#contexts.get(name);
    if (known !== undefined && known.until > now) return known.context;
    const authority = await this.#authority();
    const signer = { ...authority, subject: commonName(authority.cert) };
    const made = issueCertificate(signer, [name], { now, days: CERTIFICATE_DAYS, randomBytes });
    const context = createSecureContext({ ...made, minVersion: 'TLSv1.2' });
    this.#contexts.delete(name);
    this.#contexts.set(name, { context, until: endOf(made) - RENEWED_BEFORE_MS });
    const [oldest] = this.#contexts.keys();
    if (this.#contexts.size > MAX_NAMES && oldest !== undefined) this.#contexts.delete(oldest);
    return context;
  }

  /** Made when it is first needed. A failure is not kept: the next caller tries again. */
  #authority(): Promise<CertificateWithKey> {
    this.#pair ??= this.#open().catch((thrown: unknown) => {
      this.#pair = undefined;
      throw thrown;
    });
    return this.#pair;
  }

  async #open(): Promise<CertificateWithKey> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const files = pairFiles(this.#directory, 'egress-ca');
    const kept = await readPair(files);
    const now = this.#clock.now();
    if (kept !== undefined && endOf(kept) > now + CERTIFICATE_DAYS * DAY_MS) return kept;
    const options = { called: 'Torpor egress', names: null };
    const made = createAuthority(options, { now, days: AUTHORITY_DAYS, randomBytes });
    await writePair(files, made);
    return made;
  }
}
