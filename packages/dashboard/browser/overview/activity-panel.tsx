/** The sandboxes as they sleep and wake: one line for each, tall while it runs, flat while it sleeps. */
import { recentEvents } from '../live/recent-events.ts';
import { sandboxes } from '../live/sandboxes.ts';
import { nameOf } from '../sandboxes/actions.ts';
import { href } from '../shell/router.ts';
import { StateBadge } from '../ui/state-badge.tsx';
import { countdown, duration } from '../ui/units.ts';
import { type Lane, type LanePart, lanesOf, runningShare } from './activity.ts';
import { chooseSpan, SPANS, span, type TimeRange, timeRange } from './time-range.ts';

const MOST_LANES = 9;

const HEIGHTS: Readonly<Record<LanePart['state'], number>> = { running: 14, changing: 14, asleep: 4, bad: 4 };
const LANE_PX = 18;

export function ActivityPanel() {
  const range = timeRange.value;
  const lanes = lanesOf(recentEvents.value ?? [], sandboxes.value.values(), range, MOST_LANES);
  const alive = [...sandboxes.value.values()].filter(({ state }) => state !== 'killed').length;
  return (
    <section class="panel activity">
      <div class="row">
        <h2>Sleep and wake</h2>
        <SpanChoice />
      </div>
      <ol class="plain lanes">
        {lanes.map((lane) => (
          <li key={lane.sandbox.id}>
            <LaneRow lane={lane} range={range} />
          </li>
        ))}
      </ol>
      <div class="lane-foot">
        <span class="time-axis" aria-hidden="true">
          <span>{duration(span.value)} ago</span>
          <span>now</span>
        </span>
        <a class="small" href={href('sandboxes')}>
          {alive > lanes.length ? `All ${alive.toLocaleString()} sandboxes` : 'All sandboxes'}
        </a>
      </div>
    </section>
  );
}

function SpanChoice() {
  return (
    <fieldset class="segments push" aria-label="Time that is shown">
      {SPANS.map((one) => (
        <button
          key={one}
          type="button"
          class="segment"
          aria-pressed={span.value === one}
          onClick={() => chooseSpan(one)}
        >
          {duration(one)}
        </button>
      ))}
    </fieldset>
  );
}

function LaneRow({ lane, range }: { readonly lane: Lane; readonly range: TimeRange }) {
  const { sandbox, parts, since } = lane;
  const { from, to } = range;
  const percent = (at: number) => `${(((at - from) / (to - from)) * 100).toFixed(2)}%`;
  const width = (part: LanePart) => `${(((part.to - part.from) / (to - from)) * 100).toFixed(2)}%`;
  return (
    <>
      <a class="lane-name" href={href('sandboxes', sandbox.id)} title={nameOf(sandbox)}>
        {nameOf(sandbox)}
      </a>
      <svg
        class="lane"
        role="img"
        aria-label={`${nameOf(sandbox)} ran ${Math.round(runningShare(parts) * 100)} % of the time`}
      >
        {parts.map((part) => (
          <rect
            key={part.from}
            class={`lane-part ${part.state}`}
            x={percent(part.from)}
            width={width(part)}
            y={LANE_PX - HEIGHTS[part.state]}
            height={HEIGHTS[part.state]}
          />
        ))}
      </svg>
      <span class="lane-state">
        <StateBadge sandbox={sandbox} />
        {since !== null && to - since >= 1_000 && (
          <span class="quiet small number">{countdown(to - since)}</span>
        )}
      </span>
    </>
  );
}
