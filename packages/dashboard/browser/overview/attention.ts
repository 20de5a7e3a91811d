/** What needs attention, and what to do about it. A pure function of what the page knows. */
import type { DiskView, EventView, Health, MachineView, NodeView, SandboxId, SandboxView } from '@torpor/sdk';
import { bytes, duration, plural } from '../ui/units.ts';

export interface Matter {
  readonly id: string;
  readonly weight: 'bad' | 'warn';
  readonly title: string;
  /** What to do about it. */
  readonly advice: string;
  readonly sandboxId?: SandboxId;
}

export interface Known {
  readonly sandboxes: readonly SandboxView[];
  readonly events: readonly EventView[];
  readonly health: Health | undefined;
  readonly disk: DiskView | undefined;
  readonly machine: MachineView | undefined;
  readonly nodes: readonly NodeView[];
  readonly now: number;
}

/** Failures longer ago than this need no attention any more. */
const RECENT_MS = 24 * 3_600_000;
/** A deletion is announced a day ahead. */
const SOON_MS = 24 * 3_600_000;
const OLD_OBSERVATION_MS = 5 * 60_000;

export function mattersOf(known: Known): Matter[] {
  return [
    ...ofServer(known),
    ...known.nodes.flatMap(ofNode),
    ...known.sandboxes.flatMap((sandbox) => ofSandbox(sandbox, known)),
    ...ofEvents(known),
  ];
}

function ofServer({ health, disk, machine }: Known): Matter[] {
  const matters: Matter[] = (machine?.findings ?? []).map(({ name, ok, detail, fix }) => ({
    id: `machine ${name}`,
    weight: ok ? 'warn' : 'bad',
    // The rest of a long finding is in the doctor's report.
    title: `${name}: ${detail.split(';')[0]}`,
    advice: sentence(fix ?? 'The doctor of the section Server says more.'),
  }));
  if (health?.database === 'unavailable') {
    matters.push({
      id: 'database',
      weight: 'bad',
      title: 'The database does not answer',
      advice: 'Running sandboxes go on. Look at the log of the server and at the database itself.',
    });
  }
  if (disk !== undefined && disk.level !== 'ok') {
    matters.push({
      id: 'disk',
      weight: disk.level === 'low' ? 'warn' : 'bad',
      title: `The disk of the checkpoints is ${disk.level === 'low' ? 'nearly full' : 'full'}: ${bytes(disk.freeBytes)} free`,
      advice:
        disk.level === 'low'
          ? 'Delete checkpoints and sandboxes that are not needed, or set a retention.'
          : 'Creates, forks and snapshots are refused until there is room. Pauses and wakes still work.',
    });
  }
  return matters;
}

function ofNode({ name, state, used }: NodeView): Matter[] {
  if (state === 'alive') return [];
  const stranded = used.unknown + used.running;
  return [
    {
      id: `node ${name}`,
      weight: 'bad',
      title: `The node ${name} is away`,
      advice: `${stranded > 0 ? `${plural(stranded, 'sandbox', 'sandboxes')} ran on it. ` : ''}Start its server again, or forget it in the section Nodes when its machine is gone for good.`,
    },
  ];
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith('.') ? '' : '.'}`;
}

function ofSandbox(sandbox: SandboxView, { now }: Known): Matter[] {
  const { id, name, state, evidence, observedAt, checkpointHealth, reason, deletesAt, createdAt } = sandbox;
  const title = name ?? id;
  const about = { sandboxId: id };
  const matters: Matter[] = [];
  if (state === 'lost') {
    matters.push({
      ...about,
      id: `${id} lost`,
      weight: 'bad',
      title: `${title} is lost`,
      advice: `${reason ?? 'None of its checkpoints can be used.'} Restore a backup, or kill it and create it again.`,
    });
  }
  if (state === 'failed' && now - createdAt < RECENT_MS) {
    matters.push({
      ...about,
      id: `${id} failed`,
      weight: 'bad',
      title: `${title} never ran`,
      advice: reason ?? 'Its timeline says why. Create it again.',
    });
  }
  if (
    state === 'running' &&
    (evidence === 'unknown' || (evidence === 'gone' && now - observedAt > OLD_OBSERVATION_MS))
  ) {
    matters.push({
      ...about,
      id: `${id} unknown`,
      weight: 'warn',
      title: `${title} could not be asked for ${duration(Math.max(0, now - observedAt))}`,
      advice: 'Its runtime does not answer. The server keeps asking; torpor doctor looks for the cause.',
    });
  }
  if (
    checkpointHealth !== null &&
    checkpointHealth.health !== 'ok' &&
    state !== 'lost' &&
    state !== 'killed'
  ) {
    const { health, parts } = checkpointHealth;
    matters.push({
      ...about,
      id: `${id} checkpoint`,
      weight: health === 'unknown' ? 'warn' : 'bad',
      title: `The checkpoint of ${title} is ${health}${parts.length > 0 ? ` (${parts.join(', ')})` : ''}`,
      advice: parts.includes('files')
        ? 'Verify it. An earlier checkpoint may still start: allow the fallback "previous".'
        : 'Verify it. A wake uses its files when the memory cannot be used.',
    });
  }
  if (deletesAt !== null && deletesAt - now < SOON_MS) {
    matters.push({
      ...about,
      id: `${id} expiring`,
      weight: 'warn',
      title: `${title} will be deleted in ${duration(Math.max(0, deletesAt - now))}`,
      advice: 'Use it, or change its retention, to keep it.',
    });
  }
  return matters;
}

const FAILURES: Readonly<Record<string, string>> = {
  'sandbox.pause_failed': 'A pause failed; the sandbox runs on',
  'sandbox.resume_failed': 'A wake failed',
  'reconcile.repaired': 'A difference between record and reality was repaired',
  'sandbox.recovered': 'A sandbox ended unexpectedly; its files were recovered',
};

/** The newest failure of each kind and sandbox. */
function ofEvents({ events, now }: Known): Matter[] {
  const seen = new Set<string>();
  return events.flatMap(({ type, sandboxId, at, data }) => {
    const title = FAILURES[type];
    const id = `${sandboxId} ${type}`;
    if (title === undefined || now - at > RECENT_MS || seen.has(id)) return [];
    seen.add(id);
    const error = data['error'] as { readonly message?: unknown } | undefined;
    const message = typeof error?.message === 'string' ? error.message : data['did'];
    const advice = typeof message === 'string' ? message : 'The timeline of the sandbox has the details.';
    return [{ id, weight: 'warn' as const, title: `${title}, ${duration(now - at)} ago`, advice, sandboxId }];
  });
}
