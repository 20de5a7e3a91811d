/** Running, waking and sleeping sandboxes over time, stacked. */
import { SHOWN_STATES, type ShownState, type StateSample } from './states.ts';

const WIDTH = 600;
const HEIGHT = 90;

interface StatesChartProps {
  readonly title: string;
  readonly samples: readonly StateSample[];
  readonly from: number;
  readonly to: number;
}

export function StatesChart({ title, samples, from, to }: StatesChartProps) {
  const sums = samples.map(({ counts }) => SHOWN_STATES.reduce((sum, state) => sum + counts[state], 0));
  // Some room above, so that a full area does not look like a frame.
  const top = Math.max(4, Math.ceil(Math.max(0, ...sums) * 1.25));
  const last = samples.at(-1)?.counts;
  const x = (at: number) => (((at - from) / Math.max(1, to - from)) * WIDTH).toFixed(1);
  const y = (value: number) => (HEIGHT - 1 - (value / top) * (HEIGHT - 6)).toFixed(1);
  const now =
    last === undefined ? 'not known' : SHOWN_STATES.map((state) => `${last[state]} ${state}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="legend" aria-hidden="true">
          {SHOWN_STATES.map((state) => (
            <span key={state}>
              <span class={`swatch ${state}`} />
              {state}
            </span>
          ))}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: now ${now}`}
      >
        <line class="chart-top" x1="0" x2={WIDTH} y1="4" y2="4" />
        <line class="chart-base" x1="0" x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} />
        {samples.length > 1 &&
          SHOWN_STATES.map((state) => (
            <path key={state} class={`layer ${state}`} d={layer(samples, state, x, y)} />
          ))}
      </svg>
      <div class="row small quiet number">
        <span>top {top}</span>
      </div>
    </figure>
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
