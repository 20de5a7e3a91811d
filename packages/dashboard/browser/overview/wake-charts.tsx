/** How often sandboxes woke, and how long each wake took. */
import { sandboxes } from '../live/sandboxes.ts';
import { ChartFrame } from '../ui/chart-frame.tsx';
import { clockTime, duration, plural } from '../ui/units.ts';
import type { TimeRange } from './time-range.ts';
import { barOf, type Wakes, wakeTime } from './wakes.ts';

/** Wakes take from some ten milliseconds to seconds, so the axis of the times is logarithmic. */
const FLOOR_MS = 10;
const LEAST_TOP_MS = 1_000;

interface WakeChartProps extends Wakes {
  readonly range: TimeRange;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(2)}%`;
}

/** Every wake is a dot: its moment and its duration. */
export function WakeTimes({ wakes, range: { from, to } }: WakeChartProps) {
  const slowest = Math.max(LEAST_TOP_MS, ...wakes.map(({ ms }) => ms));
  const decades = Math.log10(slowest / FLOOR_MS) + 0.1;
  const share = (ms: number) => Math.max(0, Math.log10(Math.max(ms, 1) / FLOOR_MS) / decades);
  const lines = [100, 1_000, 10_000, 100_000].filter((ms) => share(ms) <= 1);
  const [median, slow] = [wakeTime(wakes, 0.5), wakeTime(wakes, 0.95)];
  const hasFiles = wakes.some(({ fromMemory }) => !fromMemory);
  return (
    <ChartFrame
      title="Wake time"
      summary={
        median !== undefined && slow !== undefined ? (
          <span class="number">
            <strong>{duration(median)}</strong>{' '}
            <span class="quiet small">median, 95 % in {duration(slow)}</span>
          </span>
        ) : (
          <span class="quiet">no wakes</span>
        )
      }
      span={to - from}
      legend={
        hasFiles && (
          <span class="legend">
            <span>
              <span class="swatch wake-dot" />
              memory
            </span>
            <span>
              <span class="swatch wake-dot from-files" />
              files
            </span>
          </span>
        )
      }
      lines={lines.map((ms) => ({ share: share(ms), text: duration(ms).replace('.0', '') }))}
    >
      <svg
        role="img"
        aria-label={
          median === undefined ? 'No wakes' : `${plural(wakes.length, 'wake')}, median ${duration(median)}`
        }
      >
        {wakes.map(({ at, ms, sandboxId, fromMemory }) => (
          <circle
            key={`${sandboxId} ${at}`}
            class={fromMemory ? 'wake' : 'wake from-files'}
            cx={percent((at - from) / (to - from))}
            cy={percent(1 - share(ms))}
            r="3.5"
          >
            <title>
              {sandboxes.value.get(sandboxId)?.name ?? sandboxId}, {clockTime(at)}: {duration(ms)} from{' '}
              {fromMemory ? 'memory' : 'files'}
            </title>
          </circle>
        ))}
      </svg>
    </ChartFrame>
  );
}

export function WakesPerMinute({ minutes, wakes, range }: WakeChartProps) {
  const most = Math.max(0, ...minutes.map((minute) => minute.wakes));
  const top = Math.max(4, most * 1.15);
  return (
    <ChartFrame
      title="Wakes per minute"
      summary={<span class="quiet number">{plural(wakes.length, 'wake')}</span>}
      span={range.to - range.from}
      lines={most === 0 ? [] : [{ share: most / top, text: String(most) }]}
    >
      <svg role="img" aria-label={`${plural(wakes.length, 'wake')}, at most ${most} in a minute`}>
        {minutes.map(({ at, wakes: count }) => {
          const { x, width } = barOf(at, range);
          return count === 0 ? null : (
            <rect
              key={at}
              class="minute"
              x={percent(x)}
              width={percent(width)}
              y={percent(1 - count / top)}
              height={percent(count / top)}
              rx="1.5"
            >
              <title>
                {clockTime(at)}: {plural(count, 'wake')}
              </title>
            </rect>
          );
        })}
      </svg>
    </ChartFrame>
  );
}
