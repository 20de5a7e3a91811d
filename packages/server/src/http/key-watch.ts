/**
 * Whether the keys behind open streams and sockets are still good. A request asks once, when it comes in; what
 * stays open for hours is asked for again, once for each key and not for each connection.
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
  /** Fires with the reason, `unauthenticated`, when the key is good no more. */
  readonly revoked: AbortSignal;
  /** The connection is over. */
  release(): void;
}

type Key = Pick<Identity, 'org' | 'keyId'>;

interface WatchedConnections {
  /** A signal for each, so that none holds on to the listeners of another that is long over. */
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
        // Whoever comes with it from here on was let in anew, and is watched anew.
        this.#forget(name, watching);
        for (const connection of watching.connections) connection.abort(noLongerValid());
      },
      () => {},
    );
    return watching;
  }

  /** Rejects when nobody is left who has it open. */
  async #untilLost(key: Key, over: AbortSignal): Promise<void> {
    const { clock, everyMs } = this.#ctx;
    do {
      await clock.sleep(everyMs, over);
    } while (await this.#isStillGood(key));
    over.throwIfAborted();
  }

  /** A database that cannot be asked says nothing about a key. */
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
  return new TorporError(
    'unauthenticated',
    'The API key is not valid any more: it was revoked or has expired.',
  );
}
