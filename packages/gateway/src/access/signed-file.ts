/** A request for one file of a sandbox, authenticated by a signature in its URL instead of the access token. */

export interface SignedFile {
  readonly path: string;
  readonly operation: 'read' | 'write';
  readonly user: string | undefined;
  /** Unix seconds. */
  readonly expiration: number | undefined;
}

/** Undefined when the signature is valid, else the reason in the words that E2B's clients look for. */
export type CheckSignature = (
  file: SignedFile,
  signature: string | undefined,
  accessToken: string,
  nowSeconds: number,
) => string | undefined;

/** Undefined when the request is not about a single file. */
export function signedFileIn(
  method: string,
  path: string,
): { readonly file: SignedFile; readonly signature: string | undefined } | undefined {
  if (!/^\/files(?:\?|$)/.test(path) || !['GET', 'HEAD', 'POST'].includes(method)) return undefined;
  const query = new URLSearchParams(path.slice('/files'.length));
  const expiration = query.get('signature_expiration');
  const file: SignedFile = {
    path: query.get('path') ?? '',
    operation: method === 'POST' ? 'write' : 'read',
    user: query.get('username') ?? undefined,
    expiration: expiration === null ? undefined : Number(expiration),
  };
  return { file, signature: query.get('signature') ?? undefined };
}
