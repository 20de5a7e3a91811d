/**
 * The one connection that listens to notifications. It reconnects by itself.
 *
 * Notifications are lost while there is no connection, so after each reconnect every listener is notified. A connection
 * that died silently is found by a query every 30 seconds.
 */

import type { Clock } from '@torpor/engine';
import { Mutex } from '@torpor/host';
import pg from 'pg';
import type { ChannelListeners } from './channel-listeners.ts';
import { unreachable } from './postgres-error.ts';

export interface ListenerOptions {
  readonly database: string;
  readonly connection: pg.ClientConfig;
  readonly listeners: ChannelListeners;
  readonly clock: Clock;
  /** Between 0 and 1; spreads the reconnects of many servers after an outage of the database. */
  readonly random: () => number;
}

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;
const PROBE_EVERY_MS = 30_000;
const END_TIMEOUT_MS = 1_000;

export class PostgresListener {
  readonly #options: ListenerOptions;
  readonly #closing = new AbortController();
  #client: pg.Client | undefined;
  /** pg takes one query at a time on a connection, and two callers must not both connect. */
  readonly #mutex = new Mutex();

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  async listen(channel: string, onNotice: () => void): Promise<() => Promise<void>> {
    const remove = this.#options.listeners.add(channel, onNotice);
    try {
      await this.#mutex.run(async () => {
        this.#client ??= await this.#connect();
        await this.#client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
      });
    } catch (thrown) {
      remove();
      throw unreachable(this.#options.database, thrown);
    }
    return async () => {
      remove();
      await this.#unlisten(channel);
    };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#mutex.run(async () => {
      const client = this.#client;
      this.#client = undefined;
      // A server that is gone never answers the end of the connection.
      if (client !== undefined) await Promise.race([client.end(), this.#options.clock.sleep(END_TIMEOUT_MS)]);
    });
  }

  async #unlisten(channel: string): Promise<void> {
    await this.#mutex.run(async () => {
      if (this.#options.listeners.channels.includes(channel)) return;
      // When this fails the connection is gone, and with it the subscription.
      await this.#client?.query(`UNLISTEN ${pg.escapeIdentifier(channel)}`).catch(() => undefined);
    });
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client(this.#options.connection);
    client.on('error', () => this.#lost(client));
    client.on('end', () => this.#lost(client));
    client.on('notification', ({ channel }) => this.#options.listeners.notify([channel]));
    await client.connect();
    try {
      for (const channel of this.#options.listeners.channels) {
        await client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
      }
    } catch (thrown) {
      void client.end();
      throw thrown;
    }
    void this.#probe(client);
    return client;
  }

  /** Called twice for some losses; the second call finds another client or none. */
  #lost(client: pg.Client): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    void this.#reconnect();
  }

  async #reconnect(): Promise<void> {
    const { listeners, random } = this.#options;
    let pause = FIRST_PAUSE_MS;
    while (await this.#pause(pause * (0.5 + random() / 2))) {
      try {
        await this.#mutex.run(async () => {
          if (!this.#closing.signal.aborted) this.#client ??= await this.#connect();
        });
        listeners.notify(listeners.channels);
        return;
      } catch {
        pause = Math.min(pause * 2, MAX_PAUSE_MS);
      }
    }
  }

  async #probe(client: pg.Client): Promise<void> {
    while (await this.#pause(PROBE_EVERY_MS)) {
      if (this.#client !== client) return;
      try {
        await this.#mutex.run(() => client.query('SELECT 1'));
      } catch {
        this.#lost(client);
        void client.end();
        return;
      }
    }
  }

  /** False when the listener was closed meanwhile. */
  async #pause(ms: number): Promise<boolean> {
    await this.#options.clock.sleep(ms, this.#closing.signal).catch(() => undefined);
    return !this.#closing.signal.aborted;
  }
}
