/**
 * Sign-in of browsers. A session has two halves, and a request needs both:
 *
 * - a cookie that scripts cannot read and other sites cannot send. But a browser also sends it to every other program
 *   that listens on the same host under another port.
 * - a token that the page keeps for its own origin and sends like an API key. But a script in the page could read it.
 *
 * Neither half alone authenticates anything. A link, a form or an image of another page has no token, so a request that
 * a browser sends by itself is never accepted.
 *
 * Both halves are signed with the server's secret, so that nothing is stored. A session ends with its key.
 */
import { createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock, Database } from '@torpor/engine';
import { sha256Of } from '@torpor/host';
import { PAGE_TOKEN_PREFIX } from '@torpor/protocol';
import { sameHash } from '../keys/api-key.ts';
import { type Identity, identityOf, isValidKey, noValidKey } from '../keys/identity.ts';
import { findKeyById } from '../keys/key-table.ts';
import { pageCookies } from './page-cookie.ts';
import { isFromOwnPage } from './same-origin.ts';

export interface PageSessionContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
  /** The server's secret. */
  readonly secret: Uint8Array;
  readonly sessionMs: number;
  readonly linkMs: number;
}

/** The key that a session or link acts with, and whether it may change anything. */
export type SessionKey = Pick<Identity, 'org' | 'keyId' | 'readOnly'>;

export interface OpenedSession {
  readonly cookie: string;
  readonly token: string;
  readonly expiresAt: number;
}

/** The rights of a session, as its cookie names them. */
const FULL = 'full';
const READ_ONLY = 'read';

const TOKEN = new RegExp(`^Bearer +(${PAGE_TOKEN_PREFIX}[0-9a-f]{64})$`);

type LinkRow = {
  readonly org: string;
  readonly key_id: string;
  readonly read_only: number;
  readonly expires_at: number;
};

export class PageSessions {
  readonly #ctx: PageSessionContext;

  constructor(ctx: PageSessionContext) {
    this.#ctx = ctx;
  }

  open({ org, keyId, readOnly }: SessionKey): OpenedSession {
    const expiresAt = this.#ctx.clock.now() + this.#ctx.sessionMs;
    const signed = [org, keyId, expiresAt, readOnly ? READ_ONLY : FULL, this.#random(16)].join('.');
    return { cookie: `${signed}.${this.#sign('cookie', signed)}`, token: this.#tokenOf(signed), expiresAt };
  }

  /** The identity behind the token and the cookie of a request. Undefined when the request has no page token. */
  async identify(method: string, headers: IncomingHttpHeaders): Promise<Identity | undefined> {
    const token = TOKEN.exec(headers.authorization ?? '')?.[1];
    if (token === undefined) return undefined;
    if (headers['x-api-key'] !== undefined || !isFromOwnPage(method, headers)) throw noValidKey();
    const found = pageCookies(headers.cookie).map((cookie) => this.#read(cookie, token));
    const session = found.find((one) => one !== undefined);
    if (session === undefined) throw noValidKey();
    const { db, clock } = this.#ctx;
    const key = await findKeyById(db, session.org, session.keyId);
    if (key === undefined || !isValidKey(key, clock.now())) throw noValidKey();
    return identityOf(key, headers, session.readOnly);
  }

  /** A code that signs one browser in, once. In the database, because another node may be asked to use it. */
  async makeLink(key: SessionKey): Promise<{ readonly code: string; readonly expiresAt: number }> {
    const { db, clock, linkMs } = this.#ctx;
    const now = clock.now();
    const code = this.#random(32);
    const expiresAt = now + linkMs;
    await db.transaction(async (tx) => {
      await tx.query('DELETE FROM page_links WHERE expires_at <= $1', [now]);
      await tx.query(
        'INSERT INTO page_links (code_hash, org, key_id, read_only, expires_at) VALUES ($1, $2, $3, $4, $5)',
        [sha256Of(code), key.org, key.keyId, key.readOnly ? 1 : 0, expiresAt],
      );
    });
    return { code, expiresAt };
  }

  /** The key of an unused link. The link is used from now on. */
  async useLink(code: string): Promise<SessionKey | undefined> {
    const { db, clock } = this.#ctx;
    const [link] = await db.transaction((tx) =>
      tx.query<LinkRow>(
        'DELETE FROM page_links WHERE code_hash = $1 RETURNING org, key_id, read_only, expires_at',
        [sha256Of(code)],
      ),
    );
    if (link === undefined || link.expires_at <= clock.now()) return undefined;
    return { org: link.org, keyId: link.key_id, readOnly: link.read_only === 1 };
  }

  /** The key of a session, when both halves belong to each other and the session has not expired. */
  #read(cookie: string, token: string): SessionKey | undefined {
    const at = cookie.lastIndexOf('.');
    const signed = cookie.slice(0, Math.max(0, at));
    const [org = '', keyId = '', expiresAt = '', rights] = signed.split('.');
    const isOurs = sameHash(cookie.slice(at + 1), this.#sign('cookie', signed));
    if (!isOurs || !sameHash(token, this.#tokenOf(signed))) return undefined;
    if (this.#ctx.clock.now() >= Number(expiresAt)) return undefined;
    return { org, keyId, readOnly: rights !== FULL };
  }

  #tokenOf(signed: string): string {
    return PAGE_TOKEN_PREFIX + this.#sign('token', signed);
  }

  #sign(half: 'cookie' | 'token', signed: string): string {
    return createHmac('sha256', this.#ctx.secret).update(`page ${half}\n${signed}`).digest('hex');
  }

  #random(bytes: number): string {
    return Buffer.from(this.#ctx.randomBytes(bytes)).toString('hex');
  }
}
