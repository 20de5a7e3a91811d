/**
 * What the server tells an agent at every start: the sandbox's id, the time, and the access token. It is kept in
 * memory only, so a memory image contains it, and `/init` replaces it after every start.
 */
import type { InitRequest } from '@torpor/envd';
import { sameSecret } from '@torpor/envd';

export class SandboxIdentity {
  sandboxId: string;
  hostname: string | undefined;
  defaultUser: string | undefined;
  defaultWorkdir: string | undefined;
  envs: Readonly<Record<string, string>> = {};
  #accessToken: string | undefined;
  /** An agent that was started with a credential refuses every client until `/init` has set an access token. */
  #isAccessConfigured: boolean;
  #credential: string | undefined;
  /** The server's clock minus the sandbox's clock. */
  #offsetMs = 0;
  readonly #clock: () => number;

  constructor(start: {
    sandboxId?: string | undefined;
    credential?: string | undefined;
    clock: () => number;
  }) {
    this.sandboxId = start.sandboxId ?? '';
    this.#credential = start.credential || undefined;
    this.#isAccessConfigured = this.#credential === undefined;
    this.#clock = start.clock;
  }

  /** The server's time in milliseconds, as of the last `/init`. */
  now(): number {
    return this.#clock() + this.#offsetMs;
  }

  apply(init: InitRequest): void {
    if (init.timestamp !== undefined) this.#offsetMs = init.timestamp - this.#clock();
    if (init.credential !== undefined) this.#credential = init.credential || undefined;
    if (init.accessToken !== undefined) {
      this.#accessToken = init.accessToken || undefined;
      this.#isAccessConfigured = true;
    }
    if (init.defaultUser !== undefined) this.defaultUser = init.defaultUser || undefined;
    if (init.defaultWorkdir !== undefined) this.defaultWorkdir = init.defaultWorkdir || undefined;
    if (init.hostname !== undefined) this.hostname = init.hostname || undefined;
    if (init.sandboxId !== undefined) this.sandboxId = init.sandboxId;
    this.envs = { ...init.envs };
  }

  /** The current access token, for checking signatures. */
  get token(): string | undefined {
    return this.#accessToken;
  }

  admits(token: string | undefined): boolean {
    if (this.#accessToken === undefined) return this.#isAccessConfigured;
    return sameSecret(token ?? '', this.#accessToken);
  }

  maySetUp(credential: string | undefined): boolean {
    return this.#credential === undefined || sameSecret(credential ?? '', this.#credential);
  }
}
