/** Where checkpoints and forks come from, as the ledger tells. */
import type { EventView } from '@torpor/sdk';

const ORIGINS: Readonly<Record<string, string>> = {
  request: 'by a pause',
  timeout: 'at the end of its lifetime',
  idle: 'when it was idle',
  snapshot: 'by a snapshot',
  rollback: 'before a rollback',
  evacuation: 'before the server went down',
};

/** Events that seal a checkpoint. Everything else mentions one that exists already. */
const SEALS: ReadonlySet<string> = new Set(['sandbox.paused', 'checkpoint.sealed', 'sandbox.recovered']);

/** How each checkpoint came about. */
export function originsIn(events: readonly EventView[]): ReadonlyMap<string, string> {
  return new Map(
    events.flatMap(({ type, checkpointId, data }): [string, string][] => {
      if (checkpointId === null || !SEALS.has(type)) return [];
      if (type === 'sandbox.recovered') return [[checkpointId, 'recovered after a crash']];
      const origin = ORIGINS[String(data['reason'])];
      return origin === undefined ? [] : [[checkpointId, origin]];
    }),
  );
}

/** The checkpoint that each sandbox was first started from. */
export function startsIn(events: readonly EventView[]): ReadonlyMap<string, string> {
  return new Map(
    events.flatMap(({ type, sandboxId, data }): [string, string][] => {
      const source = data['source'] as { readonly checkpointId?: unknown } | undefined;
      const from = type === 'sandbox.started' ? source?.checkpointId : undefined;
      return typeof from === 'string' ? [[sandboxId, from]] : [];
    }),
  );
}
