/**
 * Runs the jobs of some queues, up to `concurrency` at a time.
 *
 * The worker claims jobs when it is notified of new ones, when the next job is due, when a job has ended, and every
 * `pollMs`, because notifications may get lost.
 */
import { TorporError } from '@torpor/protocol';
import type { Clock } from '../ports/clock.ts';
import type { Database, Transaction } from '../ports/database.ts';
import { claim, nextClaimableAt } from './claim.ts';
import { type Job, LeaseLost, QUEUE_CHANNEL } from './job.ts';
import { keepLease } from './keep-lease.ts';
import { complete, fail, release } from './lease.ts';

/** Writes that are committed together with the end of the job. */
type Effects = (tx: Transaction) => Promise<void>;

export interface WorkerOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly queues: readonly string[];
  readonly owner: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  /** The longest time between two claims. */
  readonly pollMs: number;
  /** How long `stop` waits for handlers that ignore their signal. */
  readonly stopWithinMs: number;
  /**
   * Does the job. The signal fires when the lease is lost or the worker stops; when the handler then throws, the job goes
   * back to the queue. The handler may run again after a crash at any point, so only the effects it returns happen once.
   */
  readonly handle: (job: Job, signal: AbortSignal) => Promise<Effects | undefined>;
  /** How long to wait before the next attempt; undefined gives the job up. */
  readonly retryDelayMs?: (job: Job, error: TorporError) => number | undefined;
  /** Called in the transaction that marks the job as failed for good. */
  readonly onFailed?: (tx: Transaction, job: Job, error: TorporError) => Promise<void>;
  /** Receives errors that no caller waits for. */
  readonly onFault: (error: unknown) => void;
}

export interface Worker {
  /** Claims no more jobs, signals the handlers, and waits for them. */
  stop(): Promise<void>;
}

/** A job that is due and could not be claimed is being claimed by another worker. The pause avoids a busy loop. */
const MIN_PAUSE_MS = 10;

export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const worker = new QueueWorker(options);
  await worker.start();
  return worker;
}

class QueueWorker implements Worker {
  readonly #options: WorkerOptions;
  readonly #running = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  /** Fires when the worker no longer waits for its handlers: their leases then run out. */
  readonly #abandoned = new AbortController();
  /** Replaced before each round of claims, so that a wake-up during the round ends the pause after it. */
  #wakeUp = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #stopListening = async () => {};
  #stopped: Promise<void> | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#stopListening = await this.#options.db.listen(QUEUE_CHANNEL, () => this.#wakeUp.abort());
    this.#loop = this.#claimUntilStopped();
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const { clock, stopWithinMs } = this.#options;
    this.#stopping.abort();
    this.#wakeUp.abort();
    await this.#loop;
    await Promise.race([Promise.all(this.#running), clock.sleep(stopWithinMs, this.#abandoned.signal)]);
    this.#abandoned.abort();
    await this.#stopListening();
  }

  async #claimUntilStopped(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      this.#wakeUp = new AbortController();
      const pause = await this.#claimJobs();
      if (this.#stopping.signal.aborted) return;
      await this.#options.clock.sleep(pause, this.#wakeUp.signal).catch(() => undefined);
    }
  }

  /** Claims until all slots are in use or nothing is due; returns how long to pause. */
  async #claimJobs(): Promise<number> {
    const { db, clock, queues, concurrency, pollMs, onFault } = this.#options;
    try {
      while (this.#running.size < concurrency) {
        if (!(await this.#claimOne())) {
          const next = await nextClaimableAt(db, queues);
          if (next === undefined) return pollMs;
          return Math.min(Math.max(next - clock.now(), MIN_PAUSE_MS), pollMs);
        }
      }
    } catch (error) {
      onFault(error);
    }
    return pollMs;
  }

  async #claimOne(): Promise<boolean> {
    const { db, clock, queues, owner, leaseMs, onFailed, onFault } = this.#options;
    if (this.#stopping.signal.aborted) return false;
    const claimedAt = clock.monotonic();
    const job = await claim(db, {
      queues,
      owner,
      now: clock.now(),
      leaseMs,
      ...(onFailed === undefined ? {} : { onExhausted: onFailed }),
    });
    if (job === undefined) return false;
    const ended = this.#run(job, claimedAt)
      .catch(onFault)
      .finally(() => {
        this.#running.delete(ended);
        this.#wakeUp.abort();
      });
    this.#running.add(ended);
    return true;
  }

  async #run(job: Job, claimedAt: number): Promise<void> {
    const { db, clock, leaseMs, onFault } = this.#options;
    const done = new AbortController();
    const lost = new AbortController();
    const until = AbortSignal.any([done.signal, this.#abandoned.signal]);
    const keeping = keepLease(job, { db, clock, leaseMs, claimedAt, until, onFault }).then((isLost) => {
      if (isLost) lost.abort(new LeaseLost(job));
    });
    try {
      await this.#attempt(job, AbortSignal.any([this.#stopping.signal, lost.signal]));
    } catch (thrown) {
      if (lost.signal.aborted) onFault(lost.signal.reason);
      else await this.#endFailedAttempt(job, thrown);
    } finally {
      done.abort();
      await keeping;
    }
  }

  async #attempt(job: Job, signal: AbortSignal): Promise<void> {
    const { db, clock, handle } = this.#options;
    signal.throwIfAborted();
    const effects = await handle(job, signal);
    await db.transaction(async (tx) => {
      // First, so that a lost lease is noticed before anything else is written.
      await complete(tx, job, clock.now());
      await effects?.(tx);
    });
  }

  async #endFailedAttempt(job: Job, thrown: unknown): Promise<void> {
    const { db, clock, retryDelayMs = exponentialBackoff, onFailed, onFault } = this.#options;
    if (thrown instanceof LeaseLost) return onFault(thrown);
    if (this.#stopping.signal.aborted) return await db.transaction((tx) => release(tx, job));
    const error = TorporError.from(thrown);
    onFault(thrown);
    const delay = retryDelayMs(job, error);
    await db.transaction(async (tx) => {
      const now = clock.now();
      const retry = delay === undefined ? {} : { retryAt: now + delay };
      const state = await fail(tx, job, { error, now, ...retry });
      if (state === 'failed') await onFailed?.(tx, job, error);
    });
  }
}

const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 300_000;

function exponentialBackoff({ attempts }: Job): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (attempts - 1), MAX_RETRY_MS);
}
