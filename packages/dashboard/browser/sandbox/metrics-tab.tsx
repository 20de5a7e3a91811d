/**
 * What a sandbox uses, over time. The server keeps no history, so the page measures while this tab is open, and keeps
 * what it has measured until it is closed. A sandbox that sleeps is not measured and not woken: the lines have a gap.
 */
import { signal, useSignal } from '@preact/signals';
import type { SandboxId, SandboxMetrics } from '@torpor/sdk';
import { useEffect } from 'preact/hooks';
import { torpor } from '../shell/session.ts';
import { Chart } from '../ui/chart.tsx';
import { now } from '../ui/clock.ts';
import { faultOf } from '../ui/fault.tsx';
import { bytes } from '../ui/units.ts';
import type { TabProps } from './sandbox-view.tsx';

const EVERY_MS = 3_000;
const SHOWN_MS = 10 * 60_000;
const LEAST_SHOWN_MS = 60_000;
const KEPT = 1_000;

const measured = signal<ReadonlyMap<SandboxId, readonly SandboxMetrics[]>>(new Map());

export function MetricsTab({ sandbox: { id, state } }: TabProps) {
  const problem = useSignal<string | undefined>(undefined);
  const isRunning = state === 'running';
  useEffect(() => {
    if (!isRunning) return undefined;
    const over = new AbortController();
    const measure = async () => {
      try {
        const next = await torpor().sandboxes.metrics(id, { signal: over.signal, retries: 0 });
        const known = measured.value.get(id) ?? [];
        measured.value = new Map(measured.value).set(id, [...known.slice(-KEPT), next]);
        problem.value = undefined;
      } catch (error) {
        if (!over.signal.aborted) problem.value = faultOf(error).message;
      }
    };
    void measure();
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') void measure();
    }, EVERY_MS);
    return () => {
      clearInterval(timer);
      over.abort();
    };
  }, [id, isRunning]);
  const all = measured.value.get(id) ?? [];
  const last = all.at(-1);
  const to = now.value;
  const span = Math.min(SHOWN_MS, Math.max(LEAST_SHOWN_MS, to - (all[0]?.at ?? to)));
  const range = { from: to - span, to, gapMs: 3 * EVERY_MS };
  const points = (value: (metrics: SandboxMetrics) => number) =>
    all.map((one) => ({ at: one.at, value: value(one) }));
  return (
    <div class="stack">
      <p class="quiet">
        At most the last 10 minutes, measured every {EVERY_MS / 1_000} s while this tab is open
        {isRunning ? '.' : `. The sandbox is ${state}, so nothing is measured now.`}
      </p>
      {problem.value !== undefined && <p class="notice warn">{problem.value}</p>}
      <div class="charts">
        <Chart
          title="CPU"
          {...range}
          max={100}
          points={points(({ cpuUsedPercent }) => cpuUsedPercent)}
          format={(value) => `${value.toFixed(value < 10 ? 1 : 0)} %`}
        />
        <Chart
          title="Memory"
          {...range}
          max={Math.max(0, ...all.map(({ memoryUsedBytes }) => memoryUsedBytes)) * 1.25}
          points={points(({ memoryUsedBytes }) => memoryUsedBytes)}
          format={bytes}
        />
        <Chart
          title="Disk"
          {...range}
          max={last?.diskLimitBytes ?? last?.diskTotalBytes ?? 0}
          points={points(({ diskCountedBytes, diskUsedBytes }) => diskCountedBytes ?? diskUsedBytes)}
          format={bytes}
        />
      </div>
    </div>
  );
}
