/**
 * Lets the programs of the sandbox trust a certificate authority: in the bundles and the directory that programs read by
 * default, and by the variables of those that have lists of their own. The authority of an earlier call is replaced.
 */
import { mkdirSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readRegularFile, replaceFile } from './system-file.ts';

export interface Authority {
  /** PEM. */
  readonly certificate: string;
  /** The name under which OpenSSL looks for it in a directory, without the final ".0". */
  readonly hash: string;
}

const DIRECTORY = '/etc/ssl/certs';
const CERTIFICATE = `${DIRECTORY}/torpor-egress.pem`;
const BUNDLE = `${DIRECTORY}/ca-certificates.crt`;
/** Where other distributions have their bundle. */
const OTHER_BUNDLES = ['/etc/pki/tls/certs/ca-bundle.crt', '/etc/ssl/ca-bundle.pem', '/etc/ssl/cert.pem'];
/** `update-ca-certificates` makes the bundle anew from here. */
const LOCAL_COPY = '/usr/local/share/ca-certificates/torpor-egress.crt';

/** For programs with lists of their own: Node, Python's requests, curl and everything on OpenSSL. */
export const AUTHORITY_VARIABLES: Readonly<Record<string, string>> = {
  NODE_EXTRA_CA_CERTS: CERTIFICATE,
  SSL_CERT_FILE: BUNDLE,
  REQUESTS_CA_BUNDLE: BUNDLE,
  CURL_CA_BUNDLE: BUNDLE,
};

const BEGIN = '# Torpor egress: this certificate is written anew at every start.';
const END = '# End of Torpor egress.';

/** `root` is the root of the sandbox. Returns whether the bundle has the authority; the rest is as far as possible. */
export function trustAuthority({ certificate, hash }: Authority, root = '/'): boolean {
  if (!/^[0-9a-f]{8}$/.test(hash) || !certificate.startsWith('-----BEGIN CERTIFICATE-----')) return false;
  const at = (path: string) => join(root, path);
  const others = OTHER_BUNDLES.map(at).filter((path) => readRegularFile(path) !== '');
  const theirs = readRegularFile(at(BUNDLE)) || readRegularFile(others[0] ?? '');
  for (const path of others) replace(path, merge(readRegularFile(path), certificate));
  replace(at(LOCAL_COPY), certificate);
  replace(at(`${DIRECTORY}/${hash}.0`), certificate);
  const hasCertificate = replace(at(CERTIFICATE), certificate);
  return replace(at(BUNDLE), merge(theirs, certificate)) && hasCertificate;
}

function merge(bundle: string, certificate: string): string {
  const [begin, end] = [bundle.indexOf(BEGIN), bundle.indexOf(END)];
  const theirs =
    begin === -1 || end < begin ? bundle : bundle.slice(0, begin) + bundle.slice(end + END.length + 1);
  const separator = theirs === '' || theirs.endsWith('\n') ? '' : '\n';
  return `${theirs}${separator}${BEGIN}\n${certificate.trimEnd()}\n${END}\n`;
}

/** A link keeps leading to its file. */
function replace(path: string, content: string): boolean {
  try {
    const now = readRegularFile(path);
    if (now === content) return true;
    const target = now === '' ? path : realpathSync(path);
    mkdirSync(dirname(target), { recursive: true });
    replaceFile(target, content);
    return true;
  } catch {
    return false;
  }
}
