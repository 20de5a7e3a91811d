/** Reads the whole ledger again and compares it with the rows. For `fsck`, and for tests. */
import type { EventView, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { findJobDisagreement } from '../jobs/audit.ts';
import { allJobs } from '../jobs/job.ts';
import { type FoldedState, fold } from '../ledger/fold.ts';
import { readEvents } from '../ledger/read.ts';
import { findOpenOperation } from '../operations/operation.ts';
import { findSandbox, listSandboxes, type Sandbox } from '../sandbox.ts';
import { inPages } from './pages.ts';

export interface Disagreement {
  readonly sandboxId: SandboxId;
  readonly what: string;
}

export async function* audit(ctx: Context): AsyncGenerator<Disagreement> {
  for await (const sandbox of inPages(
    (after, limit) => listSandboxes(ctx.db, {}, after, limit),
    ctx.settings.pageSize,
  )) {
    if ((await disagreement(ctx, sandbox)) === null) continue;
    // The row and its events were read at different times; only a disagreement that a second read confirms is real.
    const again = await findSandbox(ctx.db, sandbox.id);
    const what = again === undefined ? null : await disagreement(ctx, again);
    if (what !== null) yield { sandboxId: sandbox.id, what };
  }
}

async function disagreement(ctx: Context, sandbox: Sandbox): Promise<string | null> {
  const events = await allEvents(ctx, sandbox.id);
  let folded: FoldedState | null;
  try {
    folded = fold(events);
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
  for (const field of ['seq', 'state', 'generation', 'checkpointId'] as const) {
    if (folded?.[field] !== sandbox[field]) {
      return `its row says ${field} ${sandbox[field]}, its events say ${folded?.[field]}`;
    }
  }
  const passing = sandbox.state === 'creating' || sandbox.state === 'pausing' || sandbox.state === 'resuming';
  if (passing && (await findOpenOperation(ctx.db, sandbox.id)) === undefined) {
    return `it is ${sandbox.state} and no operation is under way`;
  }
  return findJobDisagreement(await allJobs(ctx.db, sandbox.id), events, sandbox.state);
}

async function allEvents(ctx: Context, sandboxId: SandboxId): Promise<EventView[]> {
  const events: EventView[] = [];
  for (;;) {
    const page = await readEvents(ctx.db, { sandboxId, afterSeq: events.length }, 1_000);
    events.push(...page);
    if (page.length < 1_000) return events;
  }
}
