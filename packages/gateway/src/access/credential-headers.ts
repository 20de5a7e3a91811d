/** Finds the headers that carry a key or token of Torpor's, which apps must not see. An app's own values pass. */
import type { IncomingHttpHeaders } from 'node:http';
import type { SandboxId } from '@torpor/protocol';
import type { Tokens } from './tokens.ts';

const KEY_FORM = /^(?:e2b_)?[0-9a-f]{32,128}$/i;
const NONE: ReadonlySet<string> = new Set();

/** Called only with text that has the form of a key. */
export type IsKey = (text: string) => Promise<boolean>;

export function credentialHeadersIn(
  headers: IncomingHttpHeaders,
  id: SandboxId,
  tokens: Tokens,
  isKey: IsKey,
): ReadonlySet<string> | Promise<ReadonlySet<string>> {
  const candidates = keyCandidatesIn(headers);
  const access = headers['x-access-token'];
  const ours = new Set<string>();
  if (typeof access === 'string' && tokens.isAccessToken(id, access)) ours.add('x-access-token');
  if (candidates.length === 0) return ours.size === 0 ? NONE : ours;
  return Promise.all(
    candidates.map(async ([name, text]) => {
      if (await isKey(text)) ours.add(name);
    }),
  ).then(() => ours);
}

function keyCandidatesIn(headers: IncomingHttpHeaders): (readonly [name: string, key: string])[] {
  const found: (readonly [string, string])[] = [];
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  if (bearer !== undefined && KEY_FORM.test(bearer)) found.push(['authorization', bearer]);
  const plain = headers['x-api-key'];
  if (typeof plain === 'string' && KEY_FORM.test(plain)) found.push(['x-api-key', plain]);
  return found;
}
