/** What all charts over time share: title, summary, lines across with their values, and the ends of the time axis. */
import type { ComponentChildren } from 'preact';
import { duration } from './units.ts';

interface GridLine {
  /** 0 is the bottom, 1 the top. */
  readonly share: number;
  readonly text: string;
}

export interface ChartFrameProps {
  readonly title: string;
  /** Beside the title. */
  readonly summary?: ComponentChildren;
  /** Milliseconds that the width stands for. The right end is the present. */
  readonly span: number;
  readonly lines: readonly GridLine[];
  /** Between the ends of the time axis. */
  readonly legend?: ComponentChildren;
  /** The drawing, which fills the area behind the text of the lines. */
  readonly children: ComponentChildren;
}

export function ChartFrame({ title, summary, span, lines, legend, children }: ChartFrameProps) {
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        {summary}
      </figcaption>
      <div class="plot">
        {lines.map(({ share, text }) => (
          <span key={text} class="plot-line" style={{ bottom: `${share * 100}%` }} aria-hidden="true">
            {text}
          </span>
        ))}
        {children}
      </div>
      <div class="time-axis" aria-hidden="true">
        <span>{duration(span)} ago</span>
        {legend}
        <span>now</span>
      </div>
    </figure>
  );
}
