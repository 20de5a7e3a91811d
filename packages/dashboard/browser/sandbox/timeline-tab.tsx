/** What happened to a sandbox: its operations with their phases, and its other events, newest first. */
import type { EventView, OperationView } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { clockTime, duration } from '../ui/units.ts';
import { useLoaded } from '../ui/use-loaded.ts';
import { eventText, eventTitle, weightOf } from './event-text.ts';
import { phasesOf } from './phases.ts';
import type { TabProps } from './sandbox-view.tsx';
import { timelineOf } from './timeline.ts';
import { useSandboxChanges } from './use-sandbox-changes.ts';

const SHOWN = 200;

export function TimelineTab({ sandbox: { id } }: TabProps) {
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const [events, operations] = await Promise.all([
        torpor().eventPage({ sandboxId: id, order: 'newest', limit: SHOWN, signal }),
        torpor().operations.page({ sandboxId: id, limit: 100, signal }),
      ]);
      return { events, operations };
    },
    [id],
  );
  useSandboxChanges(id, reload);
  if (error !== undefined) return <FaultNotice error={error} retry={reload} />;
  if (value === undefined) return null;
  return (
    <ol class="timeline">
      {timelineOf(value.operations.items, value.events.items).map((item) =>
        item.kind === 'operation' ? (
          <Operation key={item.operation.id} operation={item.operation} events={item.events} />
        ) : (
          <li key={item.event.id} class={`event ${weightOf(item.event)}`}>
            <time class="quiet number" dateTime={new Date(item.at).toISOString()}>
              {clockTime(item.at)}
            </time>
            <div>
              <EventLine event={item.event} />
            </div>
          </li>
        ),
      )}
      {value.events.nextCursor !== null && <li class="quiet">Earlier events: torpor events {id}</li>}
    </ol>
  );
}

function EventLine({ event }: { readonly event: EventView }) {
  return (
    <>
      <span class="event-title">{eventTitle(event)}</span> <span class="quiet wrap">{eventText(event)}</span>
    </>
  );
}

interface OperationProps {
  readonly operation: OperationView;
  readonly events: readonly EventView[];
}

function Operation({ operation, events }: OperationProps) {
  const { kind, outcome, error, startedAt, endedAt } = operation;
  const phases = phasesOf(operation);
  return (
    <li class="operation">
      <time class="quiet number" dateTime={new Date(startedAt).toISOString()}>
        {clockTime(startedAt)}
      </time>
      <div class="operation-box">
        <div class="row">
          <strong>{kind}</strong>
          <span class={outcome === 'failed' ? 'tag bad' : outcome === null ? 'tag warn' : 'tag'}>
            {outcome ?? 'under way'}
          </span>
          {endedAt !== null && <span class="quiet number">{duration(endedAt - startedAt)}</span>}
        </div>
        {phases.length > 1 && (
          <>
            <div class="phase-bar" aria-hidden="true">
              {phases.map(({ name, ms }, index) => (
                <span
                  key={`${name} ${index}`}
                  style={{ flexGrow: Math.max(ms, 1) }}
                  title={`${name}: ${ms} ms`}
                />
              ))}
            </div>
            <div class="small quiet">
              {phases.map(({ name, ms }) => `${name} ${duration(ms)}`).join(' · ')}
            </div>
          </>
        )}
        {error !== null && (
          <p class="small">
            <strong>{error.code}</strong> {error.message}
          </p>
        )}
        <ol class="plain steps small">
          {events.map((event) => (
            <li key={event.id} class={weightOf(event)}>
              <span class="quiet number">+{duration(event.at - startedAt)}</span>
              <span>
                <EventLine event={event} />
              </span>
            </li>
          ))}
        </ol>
      </div>
    </li>
  );
}
