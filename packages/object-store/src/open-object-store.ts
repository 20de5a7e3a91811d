/** Opens the store at an address: `s3://bucket/prefix` or `file:///directory`. */
import { isAbsolute } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TorporError } from '@torpor/protocol';
import type { ObjectStore, StoreLimits } from './object-store.ts';

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const PREFIX = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;

const DOTS = /\/\.\.?(\/|$)/;

type StoreAddress =
  | { readonly kind: 's3'; readonly bucket: string; readonly prefix: string }
  | { readonly kind: 'directory'; readonly path: string };

export function parseStoreAddress(text: string): StoreAddress {
  // A URL with `..` would be read as another address than it seems to be.
  const url = URL.canParse(text) && !DOTS.test(text) ? new URL(text) : undefined;
  if (url?.protocol === 's3:') {
    const prefix = url.pathname.replaceAll(/^\/+|\/+$/g, '');
    const isPlain = url.username === '' && url.port === '' && url.search === '' && url.hash === '';
    if (isPlain && BUCKET.test(url.hostname) && (prefix === '' || PREFIX.test(prefix)))
      return { kind: 's3', bucket: url.hostname, prefix };
  }
  if (url?.protocol === 'file:' && url.hostname === '') {
    const path = fileURLToPath(url).replace(/(?<=.)\/+$/, '');
    if (isAbsolute(path) && path !== '/') return { kind: 'directory', path };
  }
  throw new TorporError('invalid_request', `"${text}" is not the address of a store.`, {
    hint: 'Write s3://bucket/prefix, or file:///directory for a mounted share. Credentials do not belong into it.',
  });
}

/** The variables that AWS programs know. The client library reads the others, such as those with the credentials. */
export async function openObjectStore(
  address: string,
  env: Readonly<Record<string, string | undefined>>,
  limits: StoreLimits,
): Promise<ObjectStore> {
  const parsed = parseStoreAddress(address);
  if (parsed.kind === 'directory') {
    const { DirectoryObjects } = await import('./directory-objects.ts');
    return new DirectoryObjects(parsed.path, limits);
  }
  const { S3Objects } = await import('./s3-objects.ts');
  const { bucket, prefix } = parsed;
  const endpoint = env['AWS_ENDPOINT_URL_S3'] || env['AWS_ENDPOINT_URL'] || undefined;
  const region = env['AWS_REGION'] || env['AWS_DEFAULT_REGION'] || 'us-east-1';
  const [accessKeyId, secretAccessKey] = [env['AWS_ACCESS_KEY_ID'], env['AWS_SECRET_ACCESS_KEY']];
  const session = env['AWS_SESSION_TOKEN'];
  const credentials =
    accessKeyId && secretAccessKey
      ? { accessKeyId, secretAccessKey, ...(session ? { sessionToken: session } : {}) }
      : undefined;
  return new S3Objects({ bucket, prefix, endpoint, region, credentials }, limits);
}
