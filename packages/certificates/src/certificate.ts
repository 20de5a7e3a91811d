/** Writes X.509 certificates: of a certificate authority of ours, and of a server that it signs. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
  X509Certificate,
} from 'node:crypto';
import { isIP } from 'node:net';
import {
  bits,
  boolean,
  integer,
  octets,
  oid,
  sequence,
  set,
  tagged,
  taggedBytes,
  time,
  utf8,
} from './der.ts';

/** A certificate and its key, in PEM. */
export interface CertificateWithKey {
  readonly cert: string;
  readonly key: string;
}

export interface CertificateParts {
  readonly now: number;
  readonly days: number;
  readonly randomBytes: (n: number) => Uint8Array;
}

const DAY_MS = 24 * 3_600_000;
/** The clocks of clients differ a little, also those of virtual machines on one host. */
const BACKDATED_MS = DAY_MS;

const ECDSA_SHA256 = sequence(oid('1.2.840.10045.4.3.2'));
const COMMON_NAME = '2.5.4.3';
const ORGANISATION = '2.5.4.10';

export interface AuthorityOptions {
  /** The beginning of its common name. */
  readonly called: string;
  /** The names, with their subdomains, that it may sign for; null for all names. */
  readonly names: readonly string[] | null;
}

/**
 * A certificate authority. One with names can sign only for these names and their subdomains, so that a thief of its key
 * cannot impersonate other sites to a machine that trusts it.
 */
export function createAuthority(
  { called, names }: AuthorityOptions,
  parts: CertificateParts,
): CertificateWithKey {
  const keys = makeKeys();
  // A unique name, so that an old authority in a trust store is not taken for the new one.
  const suffix = Buffer.from(parts.randomBytes(3)).toString('hex');
  const subject = name(`${called} ${suffix}`);
  const permitted = (names ?? []).map((one) => sequence(subtree(one)));
  const extensions = [
    extension('2.5.29.19', true, sequence(boolean(true), integer(Uint8Array.of(0)))),
    // Key usage: signs certificates and revocation lists.
    extension('2.5.29.15', true, bits(Buffer.from([0x06]), 1)),
    ...(names === null ? [] : [extension('2.5.29.30', true, sequence(tagged(0, ...permitted)))]),
    extension('2.5.29.14', false, octets(keyId(keys.publicKey))),
  ];
  const cert = certificate(subject, subject, keys.publicKey, keys.privateKey, extensions, parts);
  return { cert, key: pem(keys.privateKey) };
}

/** A certificate for a server of these names, which may begin with `*.`, signed by the authority. */
export function issueCertificate(
  authority: CertificateWithKey & { readonly subject: string },
  names: readonly string[],
  parts: CertificateParts,
): CertificateWithKey {
  const keys = makeKeys();
  const extensions = [
    extension('2.5.29.19', true, sequence()),
    // Key usage: digital signatures.
    extension('2.5.29.15', true, bits(Buffer.from([0x80]), 7)),
    // Extended key usage: TLS servers.
    extension('2.5.29.37', false, sequence(oid('1.3.6.1.5.5.7.3.1'))),
    extension('2.5.29.17', false, sequence(...names.map(alternativeName))),
    extension('2.5.29.35', false, sequence(taggedBytes(0, keyId(createPublicKey(authority.cert))))),
    extension('2.5.29.14', false, octets(keyId(keys.publicKey))),
  ];
  const issuerKey = createPrivateKey(authority.key);
  const subject = name(names[0] ?? 'localhost');
  const cert = certificate(subject, name(authority.subject), keys.publicKey, issuerKey, extensions, parts);
  return { cert, key: pem(keys.privateKey) };
}

/** When it expires. */
export function endOf({ cert }: Pick<CertificateWithKey, 'cert'>): number {
  return new X509Certificate(cert).validToDate.getTime();
}

/** Of a certificate that this file wrote. */
export function commonName(cert: string): string {
  return /(?:^|\n)CN=(.*)/.exec(new X509Certificate(cert).subject)?.[1] ?? '';
}

/**
 * The name, without its final `.0`, under which OpenSSL looks for this authority in a directory of certificates: the hash
 * of the subject in lower case.
 */
export function subjectHash(cert: string): string {
  const digest = createHash('sha1')
    .update(nameParts(commonName(cert).toLowerCase(), 'torpor'))
    .digest();
  return digest.readUInt32LE(0).toString(16).padStart(8, '0');
}

function makeKeys(): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

function pem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function certificate(
  subject: Buffer,
  issuer: Buffer,
  publicKey: KeyObject,
  signer: KeyObject,
  extensions: readonly Buffer[],
  { now, days, randomBytes }: CertificateParts,
): string {
  const content = sequence(
    tagged(0, integer(Uint8Array.of(2))),
    integer(randomBytes(16)),
    ECDSA_SHA256,
    issuer,
    sequence(time(now - BACKDATED_MS), time(now + days * DAY_MS)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    tagged(3, sequence(...extensions)),
  );
  const signed = sequence(content, ECDSA_SHA256, bits(sign('sha256', content, signer)));
  const lines = signed.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

function name(common: string): Buffer {
  return sequence(nameParts(common, 'Torpor'));
}

function nameParts(common: string, organisation: string): Buffer {
  const part = (kind: string, text: string) => set(sequence(oid(kind), utf8(text)));
  return Buffer.concat([part(ORGANISATION, organisation), part(COMMON_NAME, common)]);
}

function extension(kind: string, isCritical: boolean, content: Buffer): Buffer {
  return sequence(oid(kind), ...(isCritical ? [boolean(true)] : []), octets(content));
}

function keyId(key: KeyObject): Buffer {
  return createHash('sha1')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest();
}

const DNS = 2;
const ADDRESS = 7;

function alternativeName(text: string): Buffer {
  return isIP(text) === 0 ? taggedBytes(DNS, Buffer.from(text)) : taggedBytes(ADDRESS, addressBytes(text));
}

/** A name with its subdomains, or one address. */
function subtree(text: string): Buffer {
  if (isIP(text) === 0) return taggedBytes(DNS, Buffer.from(text));
  const bytes = addressBytes(text);
  return taggedBytes(ADDRESS, Buffer.concat([bytes, Buffer.alloc(bytes.length, 0xff)]));
}

/** The only IPv6 address in our certificates is the loopback. */
function addressBytes(text: string): Buffer {
  if (isIP(text) === 4) return Buffer.from(text.split('.').map(Number));
  return text === '::1' ? Buffer.concat([Buffer.alloc(15), Buffer.from([1])]) : Buffer.alloc(16);
}
