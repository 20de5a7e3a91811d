/**
 * Records the traffic between sandboxes and the outside that the runtimes have counted, by organisation and hour. The
 * runtimes count in memory, so a server that is killed loses what was counted since the last round.
 */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';

const HOUR_MS = 3_600_000;

interface Bytes {
  readonly sent: number;
  readonly received: number;
}

export class EgressCounts {
  readonly #ctx: Pick<Context, 'db' | 'clock' | 'runtimes'>;
  /** Counts that were taken from the runtimes and are not written yet. A write that fails is repeated with the next. */
  readonly #unwritten = new Map<SandboxId, Bytes>();

  constructor(ctx: Pick<Context, 'db' | 'clock' | 'runtimes'>) {
    this.#ctx = ctx;
  }

  /** Must not be called while another call is under way. */
  async write(): Promise<void> {
    const { db, clock, runtimes } = this.#ctx;
    for (const runtime of runtimes.values()) {
      for (const { instance, ...bytes } of runtime.takeEgress?.() ?? []) this.#add(instance.sandboxId, bytes);
    }
    if (this.#unwritten.size === 0) return;
    const now = clock.now();
    await db.transaction(async (tx) => {
      for (const [id, bytes] of this.#unwritten) await addToHour(tx, id, now - (now % HOUR_MS), bytes);
    });
    this.#unwritten.clear();
  }

  #add(id: SandboxId, { sent, received }: Bytes): void {
    if (sent === 0 && received === 0) return;
    const before = this.#unwritten.get(id) ?? { sent: 0, received: 0 };
    this.#unwritten.set(id, { sent: before.sent + sent, received: before.received + received });
  }
}

/** The upsert locks the row of the hour, so that servers add to the row one after the other. */
async function addToHour(tx: Transaction, id: SandboxId, hour: number, bytes: Bytes): Promise<void> {
  await tx.query(
    `INSERT INTO usage_egress (org, hour, sent, received)
     SELECT org, CAST($2 AS {integer}), CAST($3 AS {integer}), CAST($4 AS {integer}) FROM sandboxes WHERE id = $1
     ON CONFLICT (org, hour) DO UPDATE
       SET sent = usage_egress.sent + excluded.sent, received = usage_egress.received + excluded.received`,
    [id, hour, bytes.sent, bytes.received],
  );
}
