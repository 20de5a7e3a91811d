/** How all is: counts, wakes, memory and disk, recent events, and what needs attention. */
import { useComputed } from '@preact/signals';
import type { DiskView, EventView, MachineView, SandboxState, SandboxView } from '@torpor/sdk';
import { recentEvents } from '../live/recent-events.ts';
import { loadSandboxes, sandboxes, sandboxesFault } from '../live/sandboxes.ts';
import { eventText, eventTitle, weightOf } from '../sandbox/event-text.ts';
import type { Group } from '../sandboxes/list-order.ts';
import { href } from '../shell/router.ts';
import { canChange, identity, torpor } from '../shell/session.ts';
import { now } from '../ui/clock.ts';
import { Copyable } from '../ui/copyable.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { Meter, type MeterWeight } from '../ui/meter.tsx';
import { StateDot } from '../ui/state-badge.tsx';
import { ago, bytes, duration, plural } from '../ui/units.ts';
import { useEvery } from '../ui/use-every.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { ActivityPanel } from './activity-panel.tsx';
import { type Matter, mattersOf } from './attention.ts';
import { statesOverTime } from './states.ts';
import { StatesChart } from './states-chart.tsx';
import { briefly, tellingEvents } from './telling-events.ts';
import { timeRange } from './time-range.ts';
import { WakesPerMinute, WakeTimes } from './wake-charts.tsx';
import { wakesOf } from './wakes.ts';

const SERVER_EVERY_MS = 30_000;
const EVENTS_SHOWN = 12;

const isIn =
  (...states: readonly SandboxState[]) =>
  ({ state }: SandboxView) =>
    states.includes(state);

interface Count {
  readonly title: string;
  /** The state whose shape stands before the title. */
  readonly state: SandboxState;
  readonly warm?: true;
  /** The group of the list that has them. */
  readonly group: Group;
  readonly isCounted: (sandbox: SandboxView) => boolean;
}

const COUNTS: readonly Count[] = [
  { title: 'running', state: 'running', group: 'running', isCounted: isIn('running') },
  { title: 'waking', state: 'resuming', group: 'running', isCounted: isIn('resuming', 'creating') },
  { title: 'falling asleep', state: 'pausing', group: 'paused', isCounted: isIn('pausing') },
  {
    title: 'asleep, warm',
    state: 'paused',
    warm: true,
    group: 'paused',
    isCounted: ({ state, warm }) => state === 'paused' && warm === true,
  },
  {
    title: 'asleep',
    state: 'paused',
    group: 'paused',
    isCounted: ({ state, warm }) => state === 'paused' && warm !== true,
  },
  { title: 'failed or lost', state: 'lost', group: 'trouble', isCounted: isIn('failed', 'lost') },
];

export function OverviewView() {
  const fault = sandboxesFault.value;
  const { value: server, reload } = useLoaded(async (signal) => {
    const { operator } = identity();
    const [health, disk, machine, nodes] = await Promise.all([
      torpor().health({ signal }),
      operator ? torpor().disk({ signal }) : undefined,
      operator ? torpor().machine({ signal }) : undefined,
      operator ? torpor().nodes.list({ signal }) : [],
    ]);
    return { health, disk, machine, nodes };
  }, []);
  useEvery(SERVER_EVERY_MS, reload);
  const matters = useComputed(() =>
    mattersOf({
      sandboxes: [...sandboxes.value.values()],
      events: recentEvents.value ?? [],
      health: server?.health,
      disk: server?.disk,
      machine: server?.machine,
      nodes: server?.nodes ?? [],
      now: now.value,
    }),
  );
  if (fault !== null && fault !== undefined)
    return <FaultNotice error={fault} retry={() => void loadSandboxes()} />;
  if (fault === undefined || recentEvents.value === undefined) return null;
  const all = [...sandboxes.value.values()];
  return (
    <>
      <div class="page-head">
        <h1>Overview</h1>
        {server !== undefined && (
          <span class="quiet small push">
            Torpor {server.health.version}, runtime {server.health.runtime}, up for{' '}
            {duration(server.health.uptimeSeconds * 1_000)}
          </span>
        )}
      </div>
      <Counts all={all} />
      <Attention matters={matters.value} />
      {all.length === 0 && <Begin />}
      <div class="overview-columns">
        <div class="overview-column">
          {all.length > 0 && <ActivityPanel />}
          <section class="panel recent-events">
            <h2>Recent events</h2>
            {recentEvents.value.length === 0 ? (
              <p class="quiet">Nothing has happened yet.</p>
            ) : (
              <RecentEvents events={recentEvents.value} />
            )}
          </section>
        </div>
        <div class="overview-column">
          {all.length > 0 && <Charts />}
          {server?.disk !== undefined && server.machine !== undefined && (
            <Machine disk={server.disk} machine={server.machine} />
          )}
        </div>
      </div>
    </>
  );
}

function Counts({ all }: { readonly all: readonly SandboxView[] }) {
  return (
    <ul class="counts" aria-label="Sandboxes by state">
      {COUNTS.map(({ title, state, warm, group, isCounted }) => {
        const count = all.filter(isCounted).length;
        return (
          <li key={title} class={count === 0 ? 'zero' : undefined}>
            <a href={`${href('sandboxes')}?state=${group}`}>
              <span class="number count">{count.toLocaleString()}</span>
              <span class="count-title">
                <StateDot state={state} warm={warm ?? false} />
                {title}
              </span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

const MATTERS_SHOWN = 20;

function Attention({ matters }: { readonly matters: readonly Matter[] }) {
  return (
    <section class="attention" aria-label="What needs attention">
      {matters.length === 0 ? (
        <p class="calm">
          <span class="calm-mark" aria-hidden="true" />
          Nothing needs your attention.
        </p>
      ) : (
        <ul class="plain">
          {matters.slice(0, MATTERS_SHOWN).map(({ id, weight, title, advice, sandboxId }) => (
            <li key={id} class={`notice ${weight}`}>
              <strong>
                {sandboxId === undefined ? (
                  title
                ) : (
                  <a href={href('sandboxes', sandboxId, 'timeline')}>{title}</a>
                )}
              </strong>
              <span class="wrap">{advice}</span>
            </li>
          ))}
          {matters.length > MATTERS_SHOWN && (
            <li class="quiet">and {plural(matters.length - MATTERS_SHOWN, 'other matter')}</li>
          )}
        </ul>
      )}
    </section>
  );
}

/** Shown instead of the charts until there is a sandbox. */
function Begin() {
  return (
    <section class="panel begin">
      <div class="stack">
        <h2>Create the first sandbox</h2>
        <p class="quiet">
          A sandbox is an isolated computer for an agent or an app. It sleeps when nobody uses it, with its
          memory and files, and wakes at the first request. You will see it do so here.
        </p>
        {canChange() && (
          <div class="row">
            <a class="button main" href={`${href('sandboxes')}?create`}>
              Create a sandbox
            </a>
            <a class="button" href={href('connect')}>
              Connect a program
            </a>
          </div>
        )}
      </div>
      <Copyable
        title="From the command line"
        text={[
          'npx torpor create --name hello',
          "npx torpor exec hello 'echo hello from inside'",
          'npx torpor pause hello',
          'npx torpor resume hello',
        ].join('\n')}
      />
    </section>
  );
}

/** Memory and disk against what the machine has. */
function Machine({ disk, machine }: { readonly disk: DiskView; readonly machine: MachineView }) {
  const { memoryTotalBytes: memory, memoryAvailableBytes: free, cpus, load } = machine;
  return (
    <section class="panel machine">
      <h2>Machine</h2>
      <Level title="Memory" free={free} total={memory} low={memory / 10} />
      <Level
        title="Disk of checkpoints"
        free={disk.freeBytes}
        total={disk.totalBytes}
        low={disk.lowBytes}
        full={disk.refuseBytes}
      />
      <Use
        title="Processors"
        text={`load ${load.toFixed(1)} on ${cpus}`}
        label="Load"
        share={load / cpus}
        weight={load > 2 * cpus ? 'bad' : load > cpus ? 'warn' : 'plain'}
      />
    </section>
  );
}

interface LevelProps {
  readonly title: string;
  readonly free: number;
  readonly total: number;
  /** With less free than this, the bar has the colour of a warning. */
  readonly low: number;
  /** With less free than this, something is refused. */
  readonly full?: number;
}

function Level({ title, free, total, low, full = 0 }: LevelProps) {
  return (
    <Use
      title={title}
      text={`${bytes(free)} free of ${bytes(total)}`}
      label={`${title}: used`}
      share={(total - free) / total}
      weight={free < full ? 'bad' : free < low ? 'warn' : 'plain'}
    />
  );
}

interface UseProps {
  readonly title: string;
  readonly text: string;
  readonly label: string;
  readonly share: number;
  readonly weight: MeterWeight;
}

function Use({ title, text, label, share, weight }: UseProps) {
  return (
    <div>
      <div class="row">
        <span>{title}</span>
        <span class={`number push ${weight === 'plain' ? 'quiet' : `${weight}-text`}`}>{text}</span>
      </div>
      <Meter label={label} share={share} weight={weight} />
    </div>
  );
}

function Charts() {
  const range = timeRange.value;
  const { from, to } = range;
  const events = recentEvents.value ?? [];
  const wakes = wakesOf(events, range);
  return (
    <div class="overview-charts">
      <WakeTimes {...wakes} range={range} />
      <WakesPerMinute {...wakes} range={range} />
      <StatesChart samples={statesOverTime(events, sandboxes.value.values(), range)} from={from} to={to} />
    </div>
  );
}

function RecentEvents({ events }: { readonly events: readonly EventView[] }) {
  return (
    <ol class="plain recent">
      {tellingEvents(events, EVENTS_SHOWN).map((event) => (
        <li key={event.id} class={weightOf(event)}>
          <span class="quiet number small">{ago(event.at, now.value)}</span>
          <a href={href('sandboxes', event.sandboxId, 'timeline')} class="recent-name">
            {sandboxes.value.get(event.sandboxId)?.name ?? event.sandboxId}
          </a>
          <span class="wrap">
            <span class="event-title">{eventTitle(event)}</span>{' '}
            <span class="quiet">{eventText(briefly(event))}</span>
          </span>
        </li>
      ))}
    </ol>
  );
}
