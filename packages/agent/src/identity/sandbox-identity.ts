/**
 * What the server tells an agent at every start: who the sandbox is, what time it is, who may come in.
 * It lives in memory only, so it sleeps and wakes with the sandbox and is then set anew.
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
  /** Nobody comes in before the server has said who may, where it could say beforehand who the server is. */
  #isOpen: boolean;
  #credential: string | undefined;
  /** What must be added to our clock to have the server's. */
  #offsetMs = 0;
  readonly #clock: () => number;

  constructor(start: {
    sandboxId?: string | undefined;
    credential?: string | undefined;
    clock: () => number;
  }) {
    this.sandboxId = start.sandboxId ?? '';
    this.#credential = start.credential || undefined;
    this.#isOpen = this.#credential === undefined;
    this.#clock = start.clock;
  }

  /** The server's time, as well as we know it, in milliseconds. */
  now(): number {
    return this.#clock() + this.#offsetMs;
  }

  apply(init: InitRequest): void {
    if (init.timestamp !== undefined) this.#offsetMs = init.timestamp - this.#clock();
    if (init.credential !== undefined) this.#credential = init.credential || undefined;
    if (init.accessToken !== undefined) {
      this.#accessToken = init.accessToken || undefined;
      this.#isOpen = true;
    }
    if (init.defaultUser !== undefined) this.defaultUser = init.defaultUser || undefined;
    if (init.defaultWorkdir !== undefined) this.defaultWorkdir = init.defaultWorkdir || undefined;
    if (init.hostname !== undefined) this.hostname = init.hostname || undefined;
    if (init.sandboxId !== undefined) this.sandboxId = init.sandboxId;
    this.envs = { ...init.envs };
  }

  /** The token in force, for checking signatures with. */
  get token(): string | undefined {
    return this.#accessToken;
  }

  admits(token: string | undefined): boolean {
    if (this.#accessToken === undefined) return this.#isOpen;
    return sameSecret(token ?? '', this.#accessToken);
  }

  maySetUp(credential: string | undefined): boolean {
    return this.#credential === undefined || sameSecret(credential ?? '', this.#credential);
  }
}
