/** The changes of a session as text. */
import type { SessionChange, SessionView, SessionWake } from '@torpor/protocol';
import type { Colors } from './colors.ts';
import { columns } from './columns.ts';

/** What a change lost, and since when. Empty when nothing was lost. */
function lossText({ lost, lostSince }: Pick<SessionChange, 'lost' | 'lostSince'>): string {
  if (lost.length === 0) return '';
  const since = lostSince === null ? '' : ` (written since ${timeOf(lostSince)})`;
  return `${lost.join(', ')}${since}`;
}

export function boundText(name: string, { sandboxId, change }: SessionView): string {
  const loss = change === null ? '' : lossText(change);
  return `${name} is bound to ${sandboxId}${loss === '' ? '' : `; lost: ${loss}`}`;
}

export function wakeColumns(wakes: readonly SessionWake[], colors: Colors): string {
  const rows = wakes.map((wake) => [
    String(wake.ordinal),
    timeOf(wake.at),
    wake.did,
    wake.sandboxId ?? wake.formerSandboxId ?? '-',
    sourceText(wake),
    lossText(wake) || '-',
    reasonText(wake) || '-',
  ]);
  return columns(['#', 'AT', 'DID', 'SANDBOX', 'FROM', 'LOST', 'WHY'], rows, colors);
}

function sourceText({ source }: SessionWake): string {
  if (source === null) return '-';
  return source.kind === 'template' || source.checkpointId === null
    ? source.kind
    : `${source.kind} of ${source.checkpointId}`;
}

function reasonText({ error, why, message, times, recoveredAt }: SessionWake): string {
  if (error === null) return [why, message].filter((part) => part !== null).join(': ');
  const often = times === 1 ? '' : ` (${times} times)`;
  const over = recoveredAt === null ? '' : `, over since ${timeOf(recoveredAt)}`;
  return `${error.code}: ${error.message}${often}${over}`;
}

function timeOf(at: number): string {
  return new Date(at).toISOString();
}
