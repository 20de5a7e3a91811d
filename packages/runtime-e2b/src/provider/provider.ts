/** A provider as the runtime needs it, through the `e2b` package. Every call is one attempt: retries are the callers'. */
import { E2B, type Sandbox as E2BSandbox, type SandboxInfo } from 'e2b';
import { isGone, providerFailure } from './provider-failure.ts';

export interface ProviderOptions {
  readonly apiKey: string;
  /** Where its API is; without, the package's own default or `domain`. */
  readonly apiUrl?: string | undefined;
  /** Where its sandboxes are reached, told apart by headers; without, each has a host of its own below `domain`. */
  readonly sandboxUrl?: string | undefined;
  readonly domain?: string | undefined;
  /** For one request. */
  readonly requestMs: number;
  /** How long a sandbox lives at the provider when nobody renews it. */
  readonly lifetimeMs: number;
}

/** How a sandbox of the provider is reached. */
export interface Reached {
  readonly providerId: string;
  readonly domain: string;
  readonly token: string | null;
  readonly trafficToken: string | null;
}

export type ProviderState = SandboxInfo['state'] | 'gone';

export interface Listed {
  readonly providerId: string;
  readonly metadata: Readonly<Record<string, string>>;
}

export class Provider {
  readonly options: ProviderOptions;
  private readonly api: E2B;

  constructor(options: ProviderOptions) {
    this.options = options;
    const { apiKey, apiUrl, sandboxUrl, domain, requestMs } = options;
    this.api = new E2B({
      apiKey,
      validateApiKey: false,
      requestTimeoutMs: requestMs,
      retries: 0,
      ...(apiUrl === undefined ? {} : { apiUrl }),
      ...(sandboxUrl === undefined ? {} : { sandboxUrl }),
      ...(domain === undefined ? {} : { domain }),
    });
  }

  /** Where its API listens. */
  apiPort(): number {
    const { apiUrl, domain } = this.options;
    const { port, protocol } = new URL(apiUrl ?? `https://api.${domain ?? 'e2b.app'}`);
    return Number(port) || (protocol === 'http:' ? 80 : 443);
  }

  /** One that goes to sleep, and not away, when nobody renews its lifetime. */
  create(
    template: string,
    metadata: Record<string, string>,
    envs: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Reached> {
    const { lifetimeMs: timeoutMs } = this.options;
    const lifecycle = { onTimeout: 'pause', autoResume: false } as const;
    return this.ask('Creating', async () =>
      reached(await this.api.Sandbox.create(template, { timeoutMs, metadata, envs, lifecycle, signal })),
    );
  }

  /**
   * Wakes it if it sleeps. A connect may set the lifetime to the provider's own default, so it is set again. One that
   * hangs must leave time for a look at what it did.
   */
  connect(providerId: string, onResume: 'restore' | 'reboot', signal: AbortSignal): Promise<Reached> {
    const { lifetimeMs: timeoutMs, requestMs } = this.options;
    return this.ask('Connecting', async () => {
      const asking = { timeoutMs, onResume, signal, requestTimeoutMs: requestMs / 2 };
      const sandbox = await this.api.Sandbox.connect(providerId, asking);
      await this.renew(providerId, signal);
      return reached(sandbox);
    });
  }

  renew(providerId: string, signal: AbortSignal): Promise<void> {
    const { lifetimeMs } = this.options;
    return this.ask('Setting the lifetime', () =>
      this.api.Sandbox.setTimeout(providerId, lifetimeMs, { signal }),
    );
  }

  /** What it answers is not believed: `stateOf` is. */
  async pause(providerId: string, signal: AbortSignal): Promise<void> {
    await this.ask('Pausing', () => this.api.Sandbox.betaPause(providerId, { signal }));
  }

  /** `gone` only when the provider says so itself. */
  stateOf(providerId: string, signal: AbortSignal): Promise<ProviderState> {
    return this.ask('Looking', async () => {
      try {
        return (await this.api.Sandbox.getInfo(providerId, { signal })).state;
      } catch (thrown) {
        if (isGone(thrown)) return 'gone';
        throw thrown;
      }
    });
  }

  /** The sandbox runs on. The same name again is the same snapshot, newer. */
  snapshot(providerId: string, name: string, signal: AbortSignal): Promise<string> {
    return this.ask('Snapshotting', async () => {
      const { snapshotId } = await this.api.Sandbox.createSnapshot(providerId, { name, signal });
      return snapshotId;
    });
  }

  async snapshotsNamed(name: string, signal: AbortSignal): Promise<string[]> {
    const found: string[] = [];
    const pages = this.api.Sandbox.listSnapshots({ name });
    while (pages.hasNext) {
      for (const { snapshotId, names } of await this.ask('Listing', () => pages.nextItems({ signal }))) {
        // A provider that does not know the filter shows all it has.
        if ([snapshotId, ...names].some((one) => bareName(one) === name)) found.push(snapshotId);
      }
    }
    return found;
  }

  /** One that is not there is deleted already. */
  async deleteSnapshot(snapshotId: string, signal: AbortSignal): Promise<void> {
    await this.ask('Deleting', () => this.api.Sandbox.deleteSnapshot(snapshotId, { signal }));
  }

  /** One that is not there is killed already. */
  async kill(providerId: string, signal: AbortSignal): Promise<void> {
    await this.ask('Ending', async () => {
      try {
        await this.api.Sandbox.kill(providerId, { signal });
      } catch (thrown) {
        if (!isGone(thrown)) throw thrown;
      }
    });
  }

  async *list(metadata: Record<string, string>, signal: AbortSignal): AsyncGenerator<Listed> {
    const pages = this.api.Sandbox.list({ query: { metadata } });
    while (pages.hasNext) {
      signal.throwIfAborted();
      const items = await this.ask('Listing', () => pages.nextItems({ signal }));
      for (const { sandboxId, metadata: given } of items) yield { providerId: sandboxId, metadata: given };
    }
  }

  private async ask<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      throw providerFailure(thrown, what);
    }
  }
}

/** Of `team/name:tag`. */
function bareName(text: string): string {
  return text.replace(/^[^/]*\//, '').replace(/:[^:]*$/, '');
}

function reached(sandbox: E2BSandbox): Reached {
  // The package keeps it for itself; whoever speaks to the agent beside it needs it too.
  const { envdAccessToken = null } = sandbox as unknown as { readonly envdAccessToken?: string };
  const { sandboxId: providerId, sandboxDomain: domain, trafficAccessToken = null } = sandbox;
  return { providerId, domain, token: envdAccessToken, trafficToken: trafficAccessToken };
}
