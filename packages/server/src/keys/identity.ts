/** The identity behind a request's key: organisation, user and rights. */
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock, Queryable } from '@torpor/engine';
import { subjectSchema, TorporError } from '@torpor/protocol';
import { hashKey, parseKey, sameHash } from './api-key.ts';
import { findKey, type KeyRow } from './key-table.ts';

export interface Identity {
  readonly org: string;
  /** The user that the request is for. */
  readonly subject: string;
  readonly keyId: string;
  /** Whether it is a service key: it belongs to no user, may manage keys and may act for any user. */
  readonly service: boolean;
  /** Whether it is an operator key: it may manage organisations with their keys, quotas and usage. */
  readonly operator: boolean;
  /** Whether requests that change or wake something are refused. */
  readonly readOnly: boolean;
}

/** The user of a service key that names no user. */
const DEFAULT_SUBJECT = 'default';

/** One error for every problem with a key, so that it tells nothing about existing keys. */
export function noValidKey(): TorporError {
  return new TorporError('unauthenticated', 'The request has no valid API key.');
}

export async function identify(db: Queryable, clock: Clock, headers: IncomingHttpHeaders): Promise<Identity> {
  const hash = hashKey(keyIn(headers));
  const key = await findKey(db, hash);
  if (key === undefined || !sameHash(key.hash, hash) || !isValidKey(key, clock.now())) throw noValidKey();
  return identityOf(key, headers);
}

/** The identity of a request with a valid key. A session may have fewer rights than its key, never more. */
export function identityOf(key: KeyRow, headers: IncomingHttpHeaders, isReadOnlySession = false): Identity {
  const subject = subjectOf(key.subject, headers['torpor-user']);
  const { org, id: keyId, operator } = key;
  const readOnly = key.readOnly || isReadOnlySession;
  return { org, subject, keyId, service: key.subject === null, operator, readOnly };
}

export function isValidKey({ revokedAt, expiresAt }: KeyRow, now: number): boolean {
  return revokedAt === null && (expiresAt === null || expiresAt > now);
}

/** A request with two different keys is refused, because it is unclear which one counts. */
function keyIn(headers: IncomingHttpHeaders): string {
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  const plain = headers['x-api-key'];
  const given = [bearer, plain].filter((text) => typeof text === 'string').map(parseKey);
  const [key] = given;
  if (key === undefined || given.some((other) => other !== key)) throw noValidKey();
  return key;
}

function subjectOf(own: string | null, named: string | string[] | undefined): string {
  if (named === undefined) return own ?? DEFAULT_SUBJECT;
  const subject = subjectSchema.safeParse(named);
  if (!subject.success)
    throw new TorporError('invalid_request', 'The header Torpor-User is not a valid user name.');
  if (own !== null && own !== subject.data) {
    throw new TorporError('forbidden', 'Only a service key may act for another user.');
  }
  return subject.data;
}
