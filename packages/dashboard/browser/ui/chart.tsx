/** A small chart over time. Where nothing was measured for a while, the line has a gap. */
export interface Point {
  readonly at: number;
  readonly value: number;
}

export interface ChartProps {
  readonly title: string;
  readonly points: readonly Point[];
  readonly from: number;
  readonly to: number;
  /** The value at the top. */
  readonly max: number;
  /** A longer time than this between two points is a gap. */
  readonly gapMs: number;
  readonly format: (value: number) => string;
  /** What stands beside the title; default: the last value. */
  readonly summary?: string | undefined;
  /** Single measurements are bars; default: a line. */
  readonly bars?: boolean;
}

const WIDTH = 600;
const HEIGHT = 90;

export function Chart({ title, points, from, to, max, gapMs, format, summary, bars = false }: ChartProps) {
  const top = max > 0 ? max : 1;
  const x = (at: number) => ((at - from) / Math.max(1, to - from)) * WIDTH;
  const y = (value: number) => HEIGHT - 2 - (Math.min(value, top) / top) * (HEIGHT - 6);
  const shown = points.filter(({ at }) => at >= from && at <= to);
  const last = shown.at(-1);
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <strong class="number">{summary ?? (last === undefined ? '–' : format(last.value))}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${last === undefined ? 'not measured' : `now ${format(last.value)}`}, top ${format(top)}`}
      >
        <line class="chart-top" x1="0" x2={WIDTH} y1="4" y2="4" />
        <line class="chart-base" x1="0" x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} />
        {bars &&
          shown.map(({ at, value }) =>
            value === 0 ? null : (
              <path key={at} class="chart-bar" d={`M${x(at).toFixed(1)} ${HEIGHT}V${y(value).toFixed(1)}`} />
            ),
          )}
        {(bars ? [] : gapsOf(runsOf(shown, gapMs))).map(([begin, end]) => (
          <rect
            key={begin}
            class="chart-gap"
            x={x(begin).toFixed(1)}
            y="0"
            width={(x(end) - x(begin)).toFixed(1)}
            height={HEIGHT}
          >
            <title>not measured</title>
          </rect>
        ))}
        {(bars ? [] : runsOf(shown, gapMs)).map((run) => {
          const [first] = run;
          const end = run.at(-1);
          if (first === undefined || end === undefined) return null;
          const line = run.map(({ at, value }) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('L');
          return (
            <g key={first.at}>
              <path
                class="chart-area"
                d={`M${x(first.at).toFixed(1)} ${HEIGHT}L${line}L${x(end.at).toFixed(1)} ${HEIGHT}Z`}
              />
              <path class="chart-line" d={run.length === 1 ? `M${line}h1` : `M${line}`} />
            </g>
          );
        })}
      </svg>
      <div class="row small quiet number">
        <span>top {format(top)}</span>
      </div>
    </figure>
  );
}

/** The times between runs, in which nothing was measured. */
export function gapsOf(runs: readonly (readonly Point[])[]): (readonly [begin: number, end: number])[] {
  return runs.slice(1).flatMap((run, index) => {
    const begin = runs[index]?.at(-1)?.at;
    const end = run[0]?.at;
    return begin === undefined || end === undefined ? [] : [[begin, end] as const];
  });
}

/** Splits the points where more time than `gapMs` has passed. */
export function runsOf(points: readonly Point[], gapMs: number): Point[][] {
  const runs: Point[][] = [];
  let before: Point | undefined;
  for (const point of points) {
    if (before === undefined || point.at - before.at > gapMs) runs.push([]);
    runs.at(-1)?.push(point);
    before = point;
  }
  return runs;
}
