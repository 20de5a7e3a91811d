/** The doors to what runs at the provider: a relay for each port that was asked for, open until its instance ends. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { AGENT_PORT } from '@torpor/envd';
import type { Reached } from '../provider/provider.ts';
import { openRelay, type Relay } from './relay.ts';

export interface Door extends Relay {
  /** What callers of the agent prove themselves with. */
  readonly token: string;
}

export interface DoorsOptions {
  readonly socketDir: string;
  readonly sandboxUrl?: string | undefined;
}

export class Doors {
  private readonly options: DoorsOptions;
  private readonly open = new Map<string, Promise<Door>>();

  constructor(options: DoorsOptions) {
    this.options = options;
  }

  to(instance: Instance, reached: Reached, port: number): Promise<Door> {
    const name = `${prefixOf(instance)}${port}`;
    const known = this.open.get(name);
    if (known !== undefined) return known;
    const { socketDir, sandboxUrl } = this.options;
    const token = randomBytes(16).toString('hex');
    const socketPath = join(socketDir, `${name}.sock`);
    const proved = port === AGENT_PORT ? { token } : {};
    const opening = openRelay({ socketPath, reached, port, sandboxUrl, ...proved }).then((relay) => ({
      ...relay,
      token,
    }));
    this.open.set(name, opening);
    // The next to ask may have more luck.
    opening.catch(() => this.open.delete(name));
    return opening;
  }

  async close(instance?: Instance): Promise<void> {
    const prefix = instance === undefined ? '' : prefixOf(instance);
    for (const [name, door] of this.open) {
      if (!name.startsWith(prefix)) continue;
      this.open.delete(name);
      (await door.catch(() => undefined))?.close();
    }
  }
}

/** A socket's path is short. */
function prefixOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId.slice(-12)}-${generation}-`;
}
