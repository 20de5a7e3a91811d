/**
 * The background worker that replicates sealed checkpoints, oldest first and a few at a time, and deletes objects that nothing
 * needs any more. Checkpoints for which a caller waits go first.
 *
 * The worker keeps nothing that a crash would lose: what is to be done is read from the database.
 */
import { type CheckpointId, type ErrorCode, TorporError } from '@torpor/protocol';
import { type Checkpoint, findCheckpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Replicas } from '../ports/replicas.ts';
import { withTimeout } from '../with-timeout.ts';
import { StoreIdentity } from './identity.ts';
import { forgetObject, giveUpUnfinished, hasStored, listToDelete, neededStores } from './objects.ts';
import { listToReplicate } from './queue.ts';
import { CheckpointGone, Replication } from './replicate.ts';

/** How long a start waits for an answer of the store. */
const CHECK_MS = 5_000;

/** `reason` is for people. */
export type Durability =
  | { readonly replicated: true }
  | { readonly replicated: false; readonly reason: string };

export class Replicator {
  readonly replicas: Replicas;
  readonly #identity: StoreIdentity;
  readonly #context: () => Context;
  readonly #running = new Map<CheckpointId, Promise<void>>();
  /** Until when a checkpoint is left alone whose failure the database could not record. */
  readonly #resting = new Map<CheckpointId, number>();
  /** How many callers wait for each checkpoint. */
  readonly #awaited = new Map<CheckpointId, number>();
  readonly #listeners = new Set<() => void>();
  #replication: Replication | undefined;
  #filling: Promise<void> | undefined;
  #fillAgain = false;
  #isStarted = false;

  constructor(context: () => Context, replicas: Replicas) {
    this.#context = context;
    this.replicas = replicas;
    this.#identity = new StoreIdentity(context, replicas);
  }

  get #ctx(): Context {
    return this.#context();
  }

  #work(): Replication {
    this.#replication ??= new Replication(this.#ctx, this.replicas);
    return this.#replication;
  }

  /** Throws unless the store is the one of this database. Must come before every use of the store. */
  requireStore(signal: AbortSignal): Promise<void> {
    return this.#identity.require(signal);
  }

  /**
   * Refuses a store, or a data key, other than that of the objects which the database knows, and a store that a new server may
   * not use. Writes nothing to the database. A store that cannot be asked now refuses nothing: it may be down when a server
   * starts.
   */
  async check(): Promise<void> {
    const { stores, keyIds } = await neededStores(this.#ctx.db);
    const other = stores.find((store) => store !== this.replicas.url);
    if (other !== undefined) {
      throw new TorporError(
        'conflict',
        `The checkpoints of this server are kept in the store ${other}, not in ${this.replicas.url}.`,
        {
          hint: `Start with --store ${other}. docs/store.md says how to move a store.`,
          details: { store: other },
        },
      );
    }
    const unknown = keyIds.filter((id) => !this.replicas.hasKey(id));
    if (unknown.length > 0) {
      throw new TorporError(
        'conflict',
        `Objects in the store ${this.replicas.url} need the data key ${unknown.join(', ')}, which this server does not have.`,
        {
          hint: 'Put the key back into the key file, from a backup or from the server that made it. Nothing was changed.',
          details: { store: this.replicas.url, keyIds: unknown },
        },
      );
    }
    const { db, node, clock, stopping, report } = this.#ctx;
    const isNew = !(await hasStored(db, node.name, this.replicas.url));
    const asking = async (signal: AbortSignal) => {
      await this.#identity.refuseAnother(signal);
      if (isNew) await this.replicas.probe(signal);
    };
    await withTimeout(clock, CHECK_MS, 'Asking the store', asking, stopping).catch((thrown: unknown) => {
      if (isAnotherStore(thrown) || (isNew && isMistaken(thrown))) throw thrown;
      report('the store could not be asked at the start', { error: thrown });
    });
  }

  /** To be called after the server has joined: then uploads of the earlier server on this node have ended. */
  async start(): Promise<void> {
    const { db, node } = this.#ctx;
    await db.transaction((tx) => giveUpUnfinished(tx, node.name, this.replicas.url));
    this.#isStarted = true;
    const { clock, stopping, report } = this.#ctx;
    const asking = (signal: AbortSignal) => this.requireStore(signal);
    await withTimeout(clock, CHECK_MS, 'Asking the store', asking, stopping).catch((thrown: unknown) => {
      if (isAnotherStore(thrown)) throw thrown;
      report('the store could not be asked at the start', { error: thrown });
    });
  }

  /** Reads the queue once: begins as many uploads as are allowed, and deletes objects that nothing needs. */
  async round(): Promise<void> {
    if (!this.#isStarted) return;
    await this.#fill();
    await this.#deleteObjects();
  }

  /** A checkpoint was sealed: looks at the queue without waiting for the next round. */
  nudge(): void {
    if (!this.#isStarted) return;
    this.#ctx.background.run('looking for checkpoints to replicate', () => this.#fill());
  }

  /** Waits until the uploads that are under way have ended. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running.values());
  }

  /** Waits until the checkpoint is replicated, or the signal fires, or a failure shows that it will not be soon. */
  async wait(id: CheckpointId, signal: AbortSignal): Promise<Durability> {
    this.#awaited.set(id, (this.#awaited.get(id) ?? 0) + 1);
    try {
      for (;;) {
        const changed = Promise.withResolvers<void>();
        const wake = () => changed.resolve();
        this.#listeners.add(wake);
        signal.addEventListener('abort', wake, { once: true });
        try {
          const checkpoint = await findCheckpoint(this.#ctx.db, id);
          const verdict = durabilityOf(checkpoint, signal.aborted);
          if (verdict !== undefined) return verdict;
          this.nudge();
          await changed.promise;
        } finally {
          this.#listeners.delete(wake);
          signal.removeEventListener('abort', wake);
        }
      }
    } finally {
      const left = (this.#awaited.get(id) ?? 1) - 1;
      if (left > 0) this.#awaited.set(id, left);
      else this.#awaited.delete(id);
    }
  }

  /** Never runs twice at the same time. A call during a run makes the run repeat. */
  #fill(): Promise<void> {
    this.#fillAgain = true;
    this.#filling ??= (async () => {
      while (this.#fillAgain && !this.#ctx.stopping.aborted) {
        this.#fillAgain = false;
        await this.#begin();
      }
    })().finally(() => {
      this.#filling = undefined;
    });
    return this.#filling;
  }

  async #begin(): Promise<void> {
    const { db, clock, node, storeSettings } = this.#ctx;
    const resting = this.#stillResting();
    const awaited = [...this.#awaited.keys()].filter((id) => !this.#running.has(id) && !resting.includes(id));
    for (const id of awaited) {
      if (this.#running.size >= storeSettings.uploads) return;
      const checkpoint = await findCheckpoint(db, id);
      const isWaiting =
        checkpoint?.state === 'sealed' &&
        checkpoint.node === node.name &&
        !checkpoint.external &&
        checkpoint.replicatedAt === null;
      if (isWaiting && checkpoint.replicateAfter <= clock.now()) this.#run(checkpoint);
    }
    const free = storeSettings.uploads - this.#running.size;
    if (free <= 0) return;
    for (const checkpoint of await listToReplicate(
      db,
      node.name,
      clock.now(),
      [...this.#running.keys(), ...resting],
      free,
    )) {
      this.#run(checkpoint);
    }
  }

  #stillResting(): CheckpointId[] {
    const now = this.#ctx.clock.now();
    for (const [id, until] of this.#resting) if (until <= now) this.#resting.delete(id);
    return [...this.#resting.keys()];
  }

  #run(checkpoint: Checkpoint): void {
    if (this.#running.has(checkpoint.id)) return;
    const { id } = checkpoint;
    const done = this.#replicateOne(checkpoint).finally(() => {
      this.#running.delete(id);
      for (const wake of this.#listeners) wake();
      this.nudge();
    });
    this.#running.set(id, done);
  }

  async #replicateOne(checkpoint: Checkpoint): Promise<void> {
    const ctx = this.#ctx;
    try {
      await withTimeout(
        ctx.clock,
        ctx.storeSettings.replicateMs,
        `Replicating checkpoint ${checkpoint.id}`,
        async (signal) => {
          await this.requireStore(signal);
          await this.#work().run(checkpoint, signal, () => this.#giveWay(checkpoint.id, signal));
        },
        ctx.stopping,
      );
    } catch (thrown) {
      if (thrown instanceof CheckpointGone || ctx.stopping.aborted) return;
      const error = TorporError.from(thrown);
      ctx.report('replicating a checkpoint failed', { checkpointId: checkpoint.id, error: thrown });
      await this.#work()
        .recordFailure(checkpoint, error)
        .catch((failure: unknown) => {
          ctx.report('a failed replication could not be recorded', { error: failure });
          this.#resting.set(checkpoint.id, ctx.clock.now() + ctx.storeSettings.retryMs);
        });
    }
  }

  /** An upload that a caller waits for is as urgent as an operation, also when the caller came after its begin. */
  async #giveWay(id: CheckpointId, signal: AbortSignal): Promise<void> {
    if (!this.#awaited.has(id)) await this.#ctx.foreground.giveWay(signal);
  }

  /** The row goes away after the bytes, so that a crash in between repeats the deletion. */
  async #deleteObjects(): Promise<void> {
    const { db, clock, node, settings, storeSettings, stopping, report } = this.#ctx;
    for (const key of await listToDelete(db, node.name, this.replicas.url, settings.pageSize)) {
      if (stopping.aborted) return;
      if (this.#work().isUploading(key)) continue;
      try {
        await withTimeout(
          clock,
          storeSettings.callMs,
          `Deleting ${key}`,
          async (signal) => {
            await this.requireStore(signal);
            await this.replicas.delete(key, signal);
          },
          stopping,
        );
        await db.transaction((tx) => forgetObject(tx, key));
      } catch (thrown) {
        if (!stopping.aborted) report('deleting an object failed', { key, error: thrown });
        // The next round tries again; the store may be down.
        return;
      }
    }
  }
}

function isAnotherStore(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.code === 'conflict';
}

/** The address or the credentials are wrong: the operator has to mend them. */
function isMistaken(thrown: unknown): boolean {
  return thrown instanceof TorporError && (thrown.code === 'forbidden' || thrown.code === 'not_found');
}

function durabilityOf(checkpoint: Checkpoint | undefined, isOver: boolean): Durability | undefined {
  if (checkpoint === undefined || checkpoint.state !== 'sealed')
    return { replicated: false, reason: 'The checkpoint was deleted.' };
  if (checkpoint.replicatedAt !== null) return { replicated: true };
  if (checkpoint.external)
    return { replicated: false, reason: 'A provider keeps this checkpoint, outside the store.' };
  const { replicaError } = checkpoint;
  const isFinal = replicaError !== null && LASTING.has(replicaError.code);
  if (!isOver && !isFinal) return undefined;
  return { replicated: false, reason: replicaError?.message ?? 'The upload is still under way.' };
}

/** Errors that the next try, some seconds later, is not likely to resolve. */
const LASTING: ReadonlySet<string> = new Set<ErrorCode>([
  'forbidden',
  'not_found',
  'conflict',
  'storage_full',
  'checkpoint_missing',
  'checkpoint_corrupt',
  'version_unsupported',
]);
