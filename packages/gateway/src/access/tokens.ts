/**
 * What lets people and programs in. All of it is made from the server's secret and the sandbox's id, so that
 * nothing has to be stored and everything outlives a pause. Comparing takes as long for a near miss as for a far one.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Clock } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';

export interface TokenParts {
  readonly secret: Uint8Array;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
}

type Purpose = 'access' | 'preview' | 'cookie' | 'link';

export class Tokens {
  private readonly parts: TokenParts;
  /** Links are good in this process only: a server that starts again has forgotten which were used. */
  private readonly linkSecret: Uint8Array;
  /** Links that were used, until they would have ended anyway. */
  private readonly used = new Map<string, number>();

  constructor(parts: TokenParts) {
    this.parts = parts;
    this.linkSecret = parts.randomBytes(32);
  }

  /** What clients of the sandbox's agent prove themselves with. */
  accessToken(id: SandboxId): string {
    return this.sign('access', id);
  }

  /** What visitors of a private preview prove themselves with, in a header. */
  previewToken(id: SandboxId): string {
    return this.sign('preview', id);
  }

  isAccessToken(id: SandboxId, given: string): boolean {
    return isSame(given, this.accessToken(id));
  }

  isPreviewToken(id: SandboxId, given: string): boolean {
    return isSame(given, this.previewToken(id));
  }

  cookie(id: SandboxId, ms: number): string {
    const until = String(this.parts.clock.now() + ms);
    return `${until}.${this.sign('cookie', id, until)}`;
  }

  isCookie(id: SandboxId, given: string): boolean {
    const [until = '', signature = ''] = given.split('.');
    return isSame(signature, this.sign('cookie', id, until)) && this.parts.clock.now() < Number(until);
  }

  /** Lets one browser in, once. */
  link(id: SandboxId, ms: number): { readonly token: string; readonly expiresAt: number } {
    const expiresAt = this.parts.clock.now() + ms;
    const nonce = Buffer.from(this.parts.randomBytes(16)).toString('hex');
    const signed = `${expiresAt}.${nonce}`;
    return { token: `${signed}.${this.sign('link', id, signed)}`, expiresAt };
  }

  /** Whether it is one and was not used before; from now on it was. */
  useLink(id: SandboxId, given: string): boolean {
    const now = this.parts.clock.now();
    const [until = '', nonce = '', signature = ''] = given.split('.');
    if (!isSame(signature, this.sign('link', id, `${until}.${nonce}`))) return false;
    for (const [old, end] of this.used) if (end <= now) this.used.delete(old);
    if (now >= Number(until) || this.used.has(nonce)) return false;
    this.used.set(nonce, Number(until));
    return true;
  }

  private sign(purpose: Purpose, ...parts: readonly string[]): string {
    const secret = purpose === 'link' ? this.linkSecret : this.parts.secret;
    return createHmac('sha256', secret)
      .update([purpose, ...parts].join('\n'))
      .digest('hex');
  }
}

function isSame(given: string, wanted: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(wanted)];
  return left.length === right.length && timingSafeEqual(left, right);
}
