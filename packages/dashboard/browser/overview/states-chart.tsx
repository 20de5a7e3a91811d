/** Running, waking and sleeping sandboxes over time, stacked. */
import { ChartFrame } from '../ui/chart-frame.tsx';
import { SHOWN_STATES, type ShownState, type StateSample } from './states.ts';

const WIDTH = 600;
const HEIGHT = 100;

interface StatesChartProps {
  readonly samples: readonly StateSample[];
  readonly from: number;
  readonly to: number;
}

export function StatesChart({ samples, from, to }: StatesChartProps) {
  const sums = samples.map(({ counts }) => SHOWN_STATES.reduce((sum, state) => sum + counts[state], 0));
  const most = Math.max(0, ...sums);
  // Some room above, so that a full area does not look like a frame.
  const top = Math.max(4, Math.ceil(most * 1.15));
  const last = samples.at(-1)?.counts;
  const x = (at: number) => (((at - from) / Math.max(1, to - from)) * WIDTH).toFixed(1);
  const y = (value: number) => (HEIGHT - (value / top) * HEIGHT).toFixed(1);
  const now =
    last === undefined ? 'not known' : SHOWN_STATES.map((state) => `${last[state]} ${state}`).join(', ');
  return (
    <ChartFrame
      title="Sandboxes"
      summary={
        <span class="legend" aria-hidden="true">
          {SHOWN_STATES.map((state) => (
            <span key={state}>
              <span class={`swatch ${state}`} />
              {state}
            </span>
          ))}
        </span>
      }
      span={to - from}
      lines={most === 0 ? [] : [{ share: most / top, text: String(most) }]}
    >
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Sandboxes: now ${now}`}
      >
        {SHOWN_STATES.map((state) => (
          <path key={state} class={`layer ${state}`} d={layer(samples, state, x, y)} />
        ))}
      </svg>
    </ChartFrame>
  );
}

/** The area of one state, on top of the states before it in the order of `SHOWN_STATES`. */
function layer(
  samples: readonly StateSample[],
  state: ShownState,
  x: (at: number) => string,
  y: (value: number) => string,
): string {
  const below = SHOWN_STATES.slice(0, SHOWN_STATES.indexOf(state));
  const base = ({ counts }: StateSample) => below.reduce((sum, one) => sum + counts[one], 0);
  const upper = steps(samples, x, (sample) => y(base(sample) + sample.counts[state]));
  const lower = steps(samples, x, (sample) => y(base(sample)));
  return `M${[...upper, ...lower.toReversed()].join('L')}Z`;
}

/** A count keeps its value until the next sample. */
function steps(
  samples: readonly StateSample[],
  x: (at: number) => string,
  height: (sample: StateSample) => string,
): string[] {
  return samples.flatMap((sample, index) => {
    const before = samples[index - 1];
    const corner = before === undefined ? [] : [`${x(sample.at)} ${height(before)}`];
    return [...corner, `${x(sample.at)} ${height(sample)}`];
  });
}
