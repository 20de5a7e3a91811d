/**
 * Checks whether the keys of open streams and sockets are still valid. A request checks its key once, when it arrives.
 * A connection can stay open for hours, so its key is checked again: once per key, not once per connection.
 */
import type { Clock, Queryable } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { type Identity, isValidKey } from '../keys/identity.ts';
import { findKeyById } from '../keys/key-table.ts';

export interface KeyWatchContext {
  readonly db: Queryable;
  readonly clock: Clock;
  readonly everyMs: number;
}

export interface WatchedKey {
  /** Fires with the reason `unauthenticated` when the key is no longer valid. */
  readonly revoked: AbortSignal;
  /** Ends the watch of this connection. */
  release(): void;
}

type Key = Pick<Identity, 'org' | 'keyId'>;

interface WatchedConnections {
  /** One signal per connection, so that listeners of a closed connection can be collected. */
  readonly connections: Set<AbortController>;
  readonly over: AbortController;
}

export class KeyWatch {
  readonly #ctx: KeyWatchContext;
  readonly #watched = new Map<string, WatchedConnections>();

  constructor(ctx: KeyWatchContext) {
    this.#ctx = ctx;
  }

  watch({ org, keyId }: Key): WatchedKey {
    const name = JSON.stringify([org, keyId]);
    const watching = this.#watched.get(name) ?? this.#begin(name, { org, keyId });
    const connection = new AbortController();
    watching.connections.add(connection);
    return {
      revoked: connection.signal,
      release: () => {
        watching.connections.delete(connection);
        if (watching.connections.size > 0) return;
        watching.over.abort();
        this.#forget(name, watching);
      },
    };
  }

  #begin(name: string, key: Key): WatchedConnections {
    const watching: WatchedConnections = { connections: new Set(), over: new AbortController() };
    this.#watched.set(name, watching);
    void this.#untilLost(key, watching.over.signal).then(
      () => {
        // A later connection with this key has passed a new check and gets a new watch.
        this.#forget(name, watching);
        for (const connection of watching.connections) connection.abort(noLongerValid());
      },
      () => {},
    );
    return watching;
  }

  /** Resolves when the key is no longer valid. Rejects when its last connection closes. */
  async #untilLost(key: Key, over: AbortSignal): Promise<void> {
    const { clock, everyMs } = this.#ctx;
    do {
      await clock.sleep(everyMs, over);
    } while (await this.#isStillGood(key));
    over.throwIfAborted();
  }

  /** A database that does not answer says nothing about a key, so the key counts as valid. */
  async #isStillGood({ org, keyId }: Key): Promise<boolean> {
    const { db, clock } = this.#ctx;
    try {
      const key = await findKeyById(db, org, keyId);
      return key !== undefined && isValidKey(key, clock.now());
    } catch {
      return true;
    }
  }

  #forget(name: string, watching: WatchedConnections): void {
    if (this.#watched.get(name) === watching) this.#watched.delete(name);
  }
}

function noLongerValid(): TorporError {
  return new TorporError('unauthenticated', 'The API key is no longer valid: it was revoked or has expired.');
}
