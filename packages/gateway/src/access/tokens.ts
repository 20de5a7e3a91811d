/**
 * The tokens that give access to a sandbox. All are derived from the server's secret and the sandbox's id, so that none
 * has to be stored and all outlive a pause. Comparisons take constant time.
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
  readonly #parts: TokenParts;
  /** Links are valid in this process only: a restarted server does not know which links were used. */
  readonly #linkSecret: Uint8Array;
  /** Nonces of used links, with the time at which the link expires. */
  readonly #used = new Map<string, number>();

  constructor(parts: TokenParts) {
    this.#parts = parts;
    this.#linkSecret = parts.randomBytes(32);
  }

  /** Authenticates clients of the sandbox's agent. */
  accessToken(id: SandboxId): string {
    return this.#sign('access', id);
  }

  /** Authenticates clients of a private preview, in a header. */
  previewToken(id: SandboxId): string {
    return this.#sign('preview', id);
  }

  isAccessToken(id: SandboxId, given: string): boolean {
    return isSame(given, this.accessToken(id));
  }

  isPreviewToken(id: SandboxId, given: string): boolean {
    return isSame(given, this.previewToken(id));
  }

  cookie(id: SandboxId, ms: number): string {
    const until = String(this.#parts.clock.now() + ms);
    return `${until}.${this.#sign('cookie', id, until)}`;
  }

  isCookie(id: SandboxId, given: string): boolean {
    const [until = '', signature = ''] = given.split('.');
    return isSame(signature, this.#sign('cookie', id, until)) && this.#parts.clock.now() < Number(until);
  }

  /** A token that gives one browser access, once. */
  link(id: SandboxId, ms: number): { readonly token: string; readonly expiresAt: number } {
    const expiresAt = this.#parts.clock.now() + ms;
    const nonce = Buffer.from(this.#parts.randomBytes(16)).toString('hex');
    const signed = `${expiresAt}.${nonce}`;
    return { token: `${signed}.${this.#sign('link', id, signed)}`, expiresAt };
  }

  /** Whether the link is valid and unused; marks it as used. */
  useLink(id: SandboxId, given: string): boolean {
    const now = this.#parts.clock.now();
    const [until = '', nonce = '', signature = ''] = given.split('.');
    if (!isSame(signature, this.#sign('link', id, `${until}.${nonce}`))) return false;
    for (const [old, end] of this.#used) if (end <= now) this.#used.delete(old);
    if (now >= Number(until) || this.#used.has(nonce)) return false;
    this.#used.set(nonce, Number(until));
    return true;
  }

  #sign(purpose: Purpose, ...parts: readonly string[]): string {
    const secret = purpose === 'link' ? this.#linkSecret : this.#parts.secret;
    return createHmac('sha256', secret)
      .update([purpose, ...parts].join('\n'))
      .digest('hex');
  }
}

function isSame(given: string, wanted: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(wanted)];
  return left.length === right.length && timingSafeEqual(left, right);
}
