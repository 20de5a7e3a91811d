/**
 * Replicates one sealed checkpoint: each part becomes an object, then a marker lists all of them, then the
 * checkpoint's row and an event record it. Objects of layers and programs that another checkpoint has stored are used
 * again.
 */
import { type GiveWay, KeyedMutex } from '@torpor/host';
import type { TorporError } from '@torpor/protocol';
import { type Checkpoint, lockSealed } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import type { Transaction } from '../ports/database.ts';
import type { ReplicaObject, Replicas, StoredReplica } from '../ports/replicas.ts';
import { lockSandboxOf } from '../sandbox.ts';
import {
  giveUpWriting,
  insertWriting,
  isWrittenElsewhere,
  lockStored,
  markStored,
  type ObjectSubject,
  refer,
} from './objects.ts';
import { markFailed, markReplicated } from './queue.ts';

/** The checkpoint was deleted while it was replicated. Nothing is left to do. */
export class CheckpointGone extends Error {}

const LONGEST_RETRY_MS = 300_000;
/** How often to look whether another node has finished an object that both need. */
const LOOK_AGAIN_MS = 250;

export class Replication {
  readonly #ctx: Context;
  readonly #replicas: Replicas;
  /** Two checkpoints that share a layer upload it once. */
  readonly #subjects = new KeyedMutex<string>();
  readonly #uploading = new Set<string>();

  constructor(ctx: Context, replicas: Replicas) {
    this.#ctx = ctx;
    this.#replicas = replicas;
  }

  /** Whether this process is writing the object. It must not be deleted before the upload has ended. */
  isUploading(key: string): boolean {
    return this.#uploading.has(key);
  }

  async run(checkpoint: Checkpoint, signal: AbortSignal, giveWay: GiveWay): Promise<void> {
    const { clock, faults } = this.#ctx;
    const began = clock.monotonic();
    const { id } = checkpoint;
    const objects: ReplicaObject[] = [];
    for (const part of await this.#replicas.partsOf(id, signal)) {
      signal.throwIfAborted();
      const upload = (key: string) => this.#replicas.upload(id, part, key, signal, giveWay);
      objects.push(await this.#store(checkpoint, part, upload, signal));
      await faults.pass('replication.part-stored');
    }
    const marker = { kind: 'marker', subject: id } as const;
    const { key } = await this.#store(
      checkpoint,
      marker,
      (markerKey) => this.#replicas.uploadMarker(id, objects, markerKey, signal),
      signal,
    );
    await faults.pass('replication.marker-stored');
    await this.#commit(checkpoint, objects, key, Math.round(clock.monotonic() - began));
  }

  async #store(
    checkpoint: Checkpoint,
    part: ObjectSubject,
    upload: (key: string) => Promise<StoredReplica>,
    signal: AbortSignal,
  ): Promise<ReplicaObject> {
    const { db, clock } = this.#ctx;
    return this.#subjects.run(
      `${part.kind} ${part.subject}`,
      async () => {
        const key = this.#replicas.newKey(part);
        let there: ReplicaObject | 'ours' | 'being written elsewhere';
        for (;;) {
          there = await db.transaction((tx) => this.#claim(tx, checkpoint, part, key));
          if (there !== 'being written elsewhere') break;
          await clock.sleep(LOOK_AGAIN_MS, signal);
        }
        if (there !== 'ours') return there;
        this.#uploading.add(key);
        try {
          const stored = await upload(key);
          if (!(await db.transaction((tx) => markStored(tx, key, stored)))) throw new CheckpointGone();
          return { ...(part as ReplicaObject), ...stored, key };
        } finally {
          this.#uploading.delete(key);
        }
      },
      signal,
    );
  }

  /** Refers to the object that is there, or begins one under this key. */
  async #claim(
    tx: Transaction,
    checkpoint: Checkpoint,
    part: ObjectSubject,
    key: string,
  ): Promise<ReplicaObject | 'ours' | 'being written elsewhere'> {
    const { clock, node } = this.#ctx;
    const store = this.#replicas.url;
    if ((await lockSealed(tx, checkpoint.id)) === undefined) throw new CheckpointGone();
    const stored = await lockStored(tx, store, part);
    if (stored === undefined) {
      if (node.isClustered && (await isWrittenElsewhere(tx, node.name, store, part))) {
        return 'being written elsewhere';
      }
      await giveUpWriting(tx, node.name, store, part);
      await insertWriting(tx, node.name, store, key, part, clock.now());
    }
    await refer(tx, checkpoint.id, stored?.key ?? key);
    return stored ?? 'ours';
  }

  async #commit(
    checkpoint: Checkpoint,
    objects: readonly ReplicaObject[],
    marker: string,
    durationMs: number,
  ): Promise<void> {
    const ctx = this.#ctx;
    const { id: checkpointId } = checkpoint;
    await ctx.db.transaction(async (tx) => {
      const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
      if ((await lockSealed(tx, checkpointId)) === undefined) throw new CheckpointGone();
      await markReplicated(tx, checkpointId, ctx.clock.now());
      if (sandbox === undefined) return;
      const bytes = objects.reduce((sum, object) => sum + object.bytes, 0);
      const location = this.#replicas.location(marker);
      await recordEvent(
        ctx,
        tx,
        sandbox,
        'checkpoint.replicated',
        { checkpointId, location, bytes, durationMs },
        { operationId: null },
      );
    });
  }

  /** Records a failed try, with an event when the cause is a new one. Returns the time of the next try. */
  async recordFailure(checkpoint: Checkpoint, error: TorporError): Promise<void> {
    const ctx = this.#ctx;
    const { code, message } = error;
    await ctx.db.transaction(async (tx) => {
      const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
      const before = await lockSealed(tx, checkpoint.id);
      if (before === undefined) return;
      const failures = before.replicaFailures + 1;
      const delay = Math.min(ctx.storeSettings.retryMs * 2 ** Math.min(failures - 1, 20), LONGEST_RETRY_MS);
      await markFailed(tx, checkpoint.id, { code, message }, failures, ctx.clock.now() + delay);
      if (sandbox === undefined || before.replicaError?.code === code) return;
      const { details = {} } = error.toBody();
      const place = { fault: details['fault'], bucket: details['bucket'], key: details['key'] };
      const known = Object.entries(place).filter(([, value]) => typeof value === 'string');
      await recordEvent(
        ctx,
        tx,
        sandbox,
        'checkpoint.replication_failed',
        {
          checkpointId: checkpoint.id,
          code,
          message,
          store: this.#replicas.url,
          ...Object.fromEntries(known),
        },
        { operationId: null },
      );
    });
  }
}
