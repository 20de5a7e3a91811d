/** The provider's API through the `e2b` package. Every call is one attempt; callers decide about retries. */
import { E2B, type Sandbox as E2BSandbox, type SandboxInfo } from 'e2b';
import { z } from 'zod';
import { isGone, providerFailure } from './provider-failure.ts';

export interface ProviderOptions {
  readonly apiKey: string;
  /** The URL of the API. Without it, the package's default or `api.<domain>`. */
  readonly apiUrl?: string | undefined;
  /** The URL of all sandboxes, which headers tell apart. Without it, each sandbox has its own host below `domain`. */
  readonly sandboxUrl?: string | undefined;
  readonly domain?: string | undefined;
  /** Timeout of one request. */
  readonly requestMs: number;
  /** How long a sandbox runs at the provider without a renewal. */
  readonly lifetimeMs: number;
}

/** How to reach a sandbox of the provider. Instance records contain it. */
export const connectionSchema = z.object({
  providerId: z.string(),
  domain: z.string(),
  token: z.string().nullable(),
  trafficToken: z.string().nullable(),
});
export type Connection = Readonly<z.infer<typeof connectionSchema>>;

export type ProviderState = SandboxInfo['state'] | 'gone';

export interface Listed {
  readonly providerId: string;
  readonly metadata: Readonly<Record<string, string>>;
}

export class Provider {
  readonly options: ProviderOptions;
  readonly #api: E2B;

  constructor(options: ProviderOptions) {
    this.options = options;
    const { apiKey, apiUrl, sandboxUrl, domain, requestMs } = options;
    this.#api = new E2B({
      apiKey,
      validateApiKey: false,
      requestTimeoutMs: requestMs,
      retries: 0,
      ...(apiUrl === undefined ? {} : { apiUrl }),
      ...(sandboxUrl === undefined ? {} : { sandboxUrl }),
      ...(domain === undefined ? {} : { domain }),
    });
  }

  /** The port of the API. */
  apiPort(): number {
    const { apiUrl, domain } = this.options;
    const { port, protocol } = new URL(apiUrl ?? `https://api.${domain ?? 'e2b.app'}`);
    return Number(port) || (protocol === 'http:' ? 80 : 443);
  }

  /** Creates a sandbox that the provider pauses, and does not delete, at the end of its lifetime. */
  create(
    template: string,
    metadata: Record<string, string>,
    envs: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Connection> {
    const { lifetimeMs: timeoutMs } = this.options;
    const lifecycle = { onTimeout: 'pause', autoResume: false } as const;
    return this.#call('Creating', async () =>
      connectionTo(
        await this.#api.Sandbox.create(template, { timeoutMs, metadata, envs, lifecycle, signal }),
      ),
    );
  }

  /**
   * Resumes the sandbox if it is paused. A connect may reset the lifetime to the provider's default, so the lifetime is set
   * again. The timeout is half of the usual one, so that after a hanging connect there is time to ask for the state.
   */
  connect(providerId: string, onResume: 'restore' | 'reboot', signal: AbortSignal): Promise<Connection> {
    const { lifetimeMs: timeoutMs, requestMs } = this.options;
    return this.#call('Connecting', async () => {
      const options = { timeoutMs, onResume, signal, requestTimeoutMs: requestMs / 2 };
      const sandbox = await this.#api.Sandbox.connect(providerId, options);
      await this.renew(providerId, signal);
      return connectionTo(sandbox);
    });
  }

  renew(providerId: string, signal: AbortSignal): Promise<void> {
    const { lifetimeMs } = this.options;
    return this.#call('Setting the lifetime', () =>
      this.#api.Sandbox.setTimeout(providerId, lifetimeMs, { signal }),
    );
  }

  /** The answer proves nothing; the caller asks `stateOf`. */
  async pause(providerId: string, signal: AbortSignal): Promise<void> {
    await this.#call('Pausing', () => this.#api.Sandbox.betaPause(providerId, { signal }));
  }

  /** `gone` only when the provider itself reports that the sandbox does not exist. */
  stateOf(providerId: string, signal: AbortSignal): Promise<ProviderState> {
    return this.#call('Looking', async () => {
      try {
        return (await this.#api.Sandbox.getInfo(providerId, { signal })).state;
      } catch (thrown) {
        if (isGone(thrown)) return 'gone';
        throw thrown;
      }
    });
  }

  /** The sandbox continues. A snapshot with the same name is replaced. */
  snapshot(providerId: string, name: string, signal: AbortSignal): Promise<string> {
    return this.#call('Snapshotting', async () => {
      const { snapshotId } = await this.#api.Sandbox.createSnapshot(providerId, { name, signal });
      return snapshotId;
    });
  }

  async snapshotsNamed(name: string, signal: AbortSignal): Promise<string[]> {
    const found: string[] = [];
    const pages = this.#api.Sandbox.listSnapshots({ name });
    while (pages.hasNext) {
      for (const { snapshotId, names } of await this.#call('Listing', () => pages.nextItems({ signal }))) {
        // A provider that does not know the filter lists all snapshots.
        if ([snapshotId, ...names].some((one) => bareName(one) === name)) found.push(snapshotId);
      }
    }
    return found;
  }

  /** A missing snapshot counts as deleted. */
  async deleteSnapshot(snapshotId: string, signal: AbortSignal): Promise<void> {
    await this.#call('Deleting', () => this.#api.Sandbox.deleteSnapshot(snapshotId, { signal }));
  }

  /** A missing sandbox counts as killed. */
  async kill(providerId: string, signal: AbortSignal): Promise<void> {
    await this.#call('Ending', async () => {
      try {
        await this.#api.Sandbox.kill(providerId, { signal });
      } catch (thrown) {
        if (!isGone(thrown)) throw thrown;
      }
    });
  }

  async *list(metadata: Record<string, string>, signal: AbortSignal): AsyncGenerator<Listed> {
    const pages = this.#api.Sandbox.list({ query: { metadata } });
    while (pages.hasNext) {
      signal.throwIfAborted();
      const items = await this.#call('Listing', () => pages.nextItems({ signal }));
      for (const { sandboxId, metadata: given } of items) yield { providerId: sandboxId, metadata: given };
    }
  }

  async #call<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      throw providerFailure(thrown, what);
    }
  }
}

/** The name in `team/name:tag`. */
function bareName(text: string): string {
  return text.replace(/^[^/]*\//, '').replace(/:[^:]*$/, '');
}

function connectionTo(sandbox: E2BSandbox): Connection {
  // The token is not part of the package's public types, but the relay to the agent needs it.
  const { envdAccessToken = null } = tokenSchema.parse(sandbox);
  const { sandboxId: providerId, sandboxDomain: domain, trafficAccessToken = null } = sandbox;
  return { providerId, domain, token: envdAccessToken, trafficToken: trafficAccessToken };
}

const tokenSchema = z.object({ envdAccessToken: z.string().optional() });
