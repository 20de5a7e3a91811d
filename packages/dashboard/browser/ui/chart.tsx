/** A small line chart over time. Where nothing was measured for a while, the line has a gap. */
import { ChartFrame } from './chart-frame.tsx';

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
}

const WIDTH = 600;
const HEIGHT = 100;

export function Chart({ title, points, from, to, max, gapMs, format }: ChartProps) {
  const top = max > 0 ? max : 1;
  const x = (at: number) => (((at - from) / Math.max(1, to - from)) * WIDTH).toFixed(1);
  const y = (value: number) => (HEIGHT - (Math.min(value, top) / top) * HEIGHT).toFixed(1);
  const shown = points.filter(({ at }) => at >= from && at <= to);
  const last = shown.at(-1);
  const runs = runsOf(shown, gapMs);
  return (
    <ChartFrame
      title={title}
      summary={<strong class="number">{last === undefined ? '–' : format(last.value)}</strong>}
      span={to - from}
      lines={[{ share: 1, text: format(top) }]}
    >
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${last === undefined ? 'not measured' : `now ${format(last.value)}`}, top ${format(top)}`}
      >
        {gapsOf(runs).map(([begin, end]) => (
          <rect
            key={begin}
            class="chart-gap"
            x={x(begin)}
            y="0"
            width={(Number(x(end)) - Number(x(begin))).toFixed(1)}
            height={HEIGHT}
          >
            <title>not measured</title>
          </rect>
        ))}
        {runs.map((run) => {
          const [first] = run;
          const end = run.at(-1);
          if (first === undefined || end === undefined) return null;
          const line = run.map(({ at, value }) => `${x(at)} ${y(value)}`).join('L');
          return (
            <g key={first.at}>
              <path class="chart-area" d={`M${x(first.at)} ${HEIGHT}L${line}L${x(end.at)} ${HEIGHT}Z`} />
              <path class="chart-line" d={run.length === 1 ? `M${line}h2` : `M${line}`} />
            </g>
          );
        })}
      </svg>
    </ChartFrame>
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
