/** The relays to instances at the provider: one for each port that was dialled, open until the instance ends. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { AGENT_PORT } from '@torpor/envd';
import type { Connection } from '../provider/provider.ts';
import { openRelay, type Relay } from './relay.ts';

export interface TokenRelay extends Relay {
  /** The token that callers of the agent must send. */
  readonly token: string;
}

export interface RelaysOptions {
  readonly socketDir: string;
  readonly sandboxUrl?: string | undefined;
}

export class Relays {
  readonly #options: RelaysOptions;
  readonly #open = new Map<string, Promise<TokenRelay>>();

  constructor(options: RelaysOptions) {
    this.#options = options;
  }

  /** Opens the relay to a port, or returns the one that is open. */
  to(instance: Instance, connection: Connection, port: number): Promise<TokenRelay> {
    const name = `${prefixOf(instance)}${port}`;
    const known = this.#open.get(name);
    if (known !== undefined) return known;
    const { socketDir, sandboxUrl } = this.#options;
    const token = randomBytes(16).toString('hex');
    const socketPath = join(socketDir, `${name}.sock`);
    const required = port === AGENT_PORT ? { token } : {};
    const opening = openRelay({ socketPath, connection, port, sandboxUrl, ...required }).then((relay) => ({
      ...relay,
      token,
    }));
    this.#open.set(name, opening);
    // The next call tries again.
    opening.catch(() => this.#open.delete(name));
    return opening;
  }

  /** Closes the relays of an instance, or all. */
  async close(instance?: Instance): Promise<void> {
    const prefix = instance === undefined ? '' : prefixOf(instance);
    for (const [name, relay] of this.#open) {
      if (!name.startsWith(prefix)) continue;
      this.#open.delete(name);
      (await relay.catch(() => undefined))?.close();
    }
  }
}

/** Short, because the path of a socket has about 100 bytes. */
function prefixOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId.slice(-12)}-${generation}-`;
}
