/**
 * The tokens that give access to a sandbox. All are derived from the server's secret and the sandbox's id, so that none
 * has to be stored and all outlive a pause. Comparisons take constant time.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Clock } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';

/** Which one-time links were used, for all nodes. */
export interface UsedLinks {
  /** Marks the link as used until it expires. False when it was used before. */
  use(nonce: string, expiresAt: number): Promise<boolean>;
}

export interface TokenParts {
  readonly secret: Uint8Array;
  /** Absent on a server that is alone: it remembers the links itself, and links end with it. */
  readonly usedLinks?: UsedLinks | undefined;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
}

type Purpose = 'access' | 'preview' | 'cookie' | 'link';

export class Tokens {
  readonly #parts: TokenParts;
  readonly #linkSecret: Uint8Array;
  readonly #usedLinks: UsedLinks;

  constructor(parts: TokenParts) {
    this.#parts = parts;
    const { usedLinks, secret, randomBytes, clock } = parts;
    // Without a memory that outlives this process, links must not outlive it either.
    this.#linkSecret = usedLinks === undefined ? randomBytes(32) : secret;
    this.#usedLinks = usedLinks ?? rememberLinks(clock);
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
  async useLink(id: SandboxId, given: string): Promise<boolean> {
    const [until = '', nonce = '', signature = ''] = given.split('.');
    if (!isSame(signature, this.#sign('link', id, `${until}.${nonce}`))) return false;
    if (this.#parts.clock.now() >= Number(until)) return false;
    return this.#usedLinks.use(nonce, Number(until));
  }

  #sign(purpose: Purpose, ...parts: readonly string[]): string {
    const secret = purpose === 'link' ? this.#linkSecret : this.#parts.secret;
    return createHmac('sha256', secret)
      .update([purpose, ...parts].join('\n'))
      .digest('hex');
  }
}

function rememberLinks(clock: Clock): UsedLinks {
  const used = new Map<string, number>();
  return {
    use: async (nonce, expiresAt) => {
      const now = clock.now();
      for (const [old, end] of used) if (end <= now) used.delete(old);
      if (used.has(nonce)) return false;
      used.set(nonce, expiresAt);
      return true;
    },
  };
}

function isSame(given: string, wanted: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(wanted)];
  return left.length === right.length && timingSafeEqual(left, right);
}
