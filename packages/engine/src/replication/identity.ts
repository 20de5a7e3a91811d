/**
 * Tells the store of this database from another store at the same address: another service, or a bucket that was made anew.
 *
 * The first server that uses a store puts an object under a random key, and the database records the key. A store that does not
 * have this object is another store: what is missing there proves nothing about a checkpoint, and nothing may be stored there.
 */
import { Mutex } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { ConstraintViolation, type Queryable, type Transaction } from '../ports/database.ts';
import type { Replicas } from '../ports/replicas.ts';
import { insertWriting, markStored } from './objects.ts';

export class StoreIdentity {
  readonly #context: () => Context;
  readonly #replicas: Replicas;
  readonly #asking = new Mutex();
  /** The key under which this process stores the identity, if no other server is first. */
  #candidate: string | undefined;
  #isProved = false;

  constructor(context: () => Context, replicas: Replicas) {
    this.#context = context;
    this.#replicas = replicas;
  }

  /**
   * Throws `conflict` when it is proved that the store is another one. Writes nothing to the database, so that a server may ask
   * before it joins.
   */
  async refuseAnother(signal: AbortSignal): Promise<void> {
    const recorded = await identityOf(this.#context().db, this.#replicas.url);
    if (recorded !== undefined) await this.#prove(recorded, signal);
  }

  /** As `refuseAnother`, and records the identity of a store that is used for the first time. Asks the store once. */
  async require(signal: AbortSignal): Promise<void> {
    if (this.#isProved) return;
    await this.#asking.run(async () => {
      if (this.#isProved) return;
      signal.throwIfAborted();
      const recorded = await identityOf(this.#context().db, this.#replicas.url);
      await this.#prove(recorded ?? (await this.#record(signal)), signal);
    });
  }

  async #prove(key: string, signal: AbortSignal): Promise<void> {
    if (!(await this.#replicas.has(key, signal))) throw anotherStore(this.#replicas, key);
    this.#isProved = true;
  }

  /** Returns the key that the database has in the end, which may be that of another node. */
  async #record(signal: AbortSignal): Promise<string> {
    const { db, faults } = this.#context();
    const key = await this.#beginCandidate();
    const stored = await this.#replicas.uploadIdentity(key, signal);
    await faults.pass('replication.identity-stored');
    const isFirst = await db
      .transaction((tx) => markStored(tx, key, stored))
      .catch((thrown: unknown) => {
        if (thrown instanceof ConstraintViolation) return false;
        throw thrown;
      });
    if (!isFirst) await db.transaction((tx) => giveUpCandidate(tx, key));
    this.#candidate = undefined;
    const recorded = await identityOf(db, this.#replicas.url);
    if (recorded === undefined) throw new Error('The identity of the store was not recorded.');
    return recorded;
  }

  /** The row is there before the first byte, as that of every object. A try that failed is repeated under its key. */
  async #beginCandidate(): Promise<string> {
    if (this.#candidate !== undefined) return this.#candidate;
    const { db, clock, node } = this.#context();
    const key = this.#replicas.newKey({ kind: 'identity', subject: 'store' });
    // The key is the subject too: several nodes may write their candidates at the same time.
    const subject = { kind: 'identity', subject: key } as const;
    await db.transaction((tx) => insertWriting(tx, node.name, this.#replicas.url, key, subject, clock.now()));
    this.#candidate = key;
    return key;
  }
}

async function identityOf(db: Queryable, store: string): Promise<string | undefined> {
  const [row] = await db.query<{ key: string }>(
    "SELECT key FROM stored_objects WHERE store = $1 AND kind = 'identity' AND state = 'stored'",
    [store],
  );
  return row?.key;
}

async function giveUpCandidate(tx: Transaction, key: string): Promise<void> {
  await tx.query("UPDATE stored_objects SET state = 'deleting' WHERE key = $1 AND state = 'writing'", [key]);
}

function anotherStore(replicas: Replicas, key: string): TorporError {
  const { url } = replicas;
  return new TorporError(
    'conflict',
    `The store that answers at ${url} is not the one that has the checkpoints of this database: it lacks ${key}.`,
    {
      hint: 'Check AWS_ENDPOINT_URL, the credentials and --store: the same name may mean another bucket there. Nothing was changed. docs/store.md says what to do when the bucket was emptied.',
      details: { fault: 'another_store', store: url, key: replicas.location(key) },
    },
  );
}
