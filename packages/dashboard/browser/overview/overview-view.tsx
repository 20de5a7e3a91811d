/** How all is: counts, wakes, memory and disk, recent events, and what needs attention. */
import { useComputed } from '@preact/signals';
import type { DiskView, EventView, MachineView, SandboxState, SandboxView } from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { isWholeLedger, recentEvents } from '../live/recent-events.ts';
import { loadSandboxes, sandboxes, sandboxesFault } from '../live/sandboxes.ts';
import { eventText, eventTitle, weightOf } from '../sandbox/event-text.ts';
import { href } from '../shell/router.ts';
import { identity, torpor } from '../shell/session.ts';
import { Chart } from '../ui/chart.tsx';
import { now } from '../ui/clock.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { ago, bytes, duration } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { mattersOf } from './attention.ts';
import { statesOverTime } from './states.ts';
import { StatesChart } from './states-chart.tsx';
import { wakesOf } from './wakes.ts';

const HOUR_MS = 3_600_000;
const TEN_MINUTES_MS = 600_000;
const SERVER_EVERY_MS = 30_000;
const EVENTS_SHOWN = 12;

const isIn =
  (...states: readonly SandboxState[]) =>
  ({ state }: SandboxView) =>
    states.includes(state);

const COUNTS: readonly (readonly [title: string, isCounted: (sandbox: SandboxView) => boolean])[] = [
  ['running', isIn('running')],
  ['waking', isIn('resuming', 'creating')],
  ['falling asleep', isIn('pausing')],
  ['asleep, warm', ({ state, warm }) => state === 'paused' && warm === true],
  ['asleep', ({ state, warm }) => state === 'paused' && warm !== true],
  ['failed or lost', isIn('failed', 'lost')],
];

export function OverviewView() {
  const fault = sandboxesFault.value;
  const { value: server, reload } = useLoaded(async (signal) => {
    const { operator } = identity();
    const [health, disk, machine] = await Promise.all([
      torpor().health({ signal }),
      operator ? torpor().disk({ signal }) : undefined,
      operator ? torpor().machine({ signal }) : undefined,
    ]);
    return { health, disk, machine };
  }, []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') reload();
    }, SERVER_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const matters = useComputed(() =>
    mattersOf({
      sandboxes: [...sandboxes.value.values()],
      events: recentEvents.value ?? [],
      health: server?.health,
      disk: server?.disk,
      machine: server?.machine,
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
      <dl class="counts">
        {COUNTS.map(([title, isCounted]) => {
          const count = all.filter(isCounted).length;
          return (
            <div key={title} class={count === 0 ? 'zero' : undefined}>
              <dt>{title}</dt>
              <dd class="number">{count.toLocaleString()}</dd>
            </div>
          );
        })}
      </dl>
      <section class="stack" aria-label="What needs attention">
        {matters.value.length === 0 ? (
          <p class="calm">Nothing needs your attention.</p>
        ) : (
          <ul class="plain">
            {matters.value.slice(0, 20).map(({ id, weight, title, advice, sandboxId }) => (
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
          </ul>
        )}
      </section>
      <Charts />
      {server?.disk !== undefined && server.machine !== undefined && (
        <Machine disk={server.disk} machine={server.machine} />
      )}
      <section class="panel">
        <h2>Recent events</h2>
        {recentEvents.value.length === 0 ? (
          <p class="quiet">Nothing has happened yet. Create a sandbox to begin.</p>
        ) : (
          <RecentEvents events={recentEvents.value} />
        )}
      </section>
    </>
  );
}

/** Memory and disk against what the machine has. */
function Machine({ disk, machine }: { readonly disk: DiskView; readonly machine: MachineView }) {
  const { memoryTotalBytes: memory, memoryAvailableBytes: free, cpus, load } = machine;
  return (
    <section class="panel machine" aria-label="The machine">
      <Level title="Memory" free={free} total={memory} low={memory / 10} />
      <Level title="Disk of checkpoints" free={disk.freeBytes} total={disk.totalBytes} low={disk.lowBytes} />
      <div>
        <div class="row">
          <h2>Processors</h2>
          <span class="quiet number push">
            load {load.toFixed(1)} on {cpus}
          </span>
        </div>
        <meter aria-label="Load" min={0} max={Math.max(cpus, load)} high={cpus * 0.9} value={load} />
      </div>
    </section>
  );
}

interface LevelProps {
  readonly title: string;
  readonly free: number;
  readonly total: number;
  /** With less free than this, the bar has the colour of a warning. */
  readonly low: number;
}

function Level({ title, free, total, low }: LevelProps) {
  return (
    <div>
      <div class="row">
        <h2>{title}</h2>
        <span class="quiet number push">
          {bytes(free)} free of {bytes(total)}
        </span>
      </div>
      <meter aria-label={`${title}: used`} min={0} max={total} high={total - low} value={total - free} />
    </div>
  );
}

function Charts() {
  // By the minute, so that the charts are not drawn again every second.
  const minute = useComputed(() => Math.ceil(now.value / 60_000) * 60_000);
  const to = minute.value;
  // A new server has no hour to show.
  const oldest = recentEvents.value?.at(-1)?.at ?? to;
  const isNew = isWholeLedger.value && to - oldest < TEN_MINUTES_MS;
  const range = { from: to - (isNew ? TEN_MINUTES_MS : HOUR_MS), to };
  const when = isNew ? 'last 10 minutes' : 'last hour';
  const { perMinute, durations, medianMs } = wakesOf(recentEvents.value ?? [], range.from, to);
  const samples = statesOverTime(recentEvents.value ?? [], sandboxes.value.values(), {
    ...range,
    whole: isWholeLedger.value,
  });
  return (
    <div class="charts overview-charts">
      <StatesChart title={`Sandboxes, ${when}`} {...range} samples={samples} />
      <Chart
        title={`Wakes per minute, ${when}`}
        {...range}
        points={perMinute}
        max={Math.max(4, ...perMinute.map(({ value }) => value))}
        gapMs={HOUR_MS}
        bars
        format={(value) => String(Math.round(value))}
      />
      <Chart
        title={`Wake time, ${when}`}
        summary={medianMs === undefined ? undefined : `median ${duration(medianMs)}`}
        {...range}
        points={durations}
        max={Math.max(100, ...durations.map(({ value }) => value)) * 1.1}
        gapMs={HOUR_MS}
        bars
        format={duration}
      />
    </div>
  );
}

function RecentEvents({ events }: { readonly events: readonly EventView[] }) {
  const shown = events.filter(({ type }) => type !== 'operation.phase').slice(0, EVENTS_SHOWN);
  return (
    <ol class="plain recent">
      {shown.map((event) => (
        <li key={event.id} class={weightOf(event)}>
          <span class="quiet number small">{ago(event.at, now.value)}</span>
          <a href={href('sandboxes', event.sandboxId, 'timeline')} class="recent-name">
            {sandboxes.value.get(event.sandboxId)?.name ?? event.sandboxId}
          </a>
          <span>
            {eventTitle(event)} <span class="quiet">{eventText(event)}</span>
          </span>
        </li>
      ))}
    </ol>
  );
}
