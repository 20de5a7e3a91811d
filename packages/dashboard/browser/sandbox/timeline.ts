/** Orders what happened to a sandbox: operations with their events, and the events of no operation. Pure functions. */
import type { EventView, OperationView } from '@torpor/sdk';

export type TimelineItem =
  | {
      readonly kind: 'operation';
      readonly at: number;
      readonly operation: OperationView;
      /** In order. Its phases are not among them: the operation has them. */
      readonly events: readonly EventView[];
    }
  | { readonly kind: 'event'; readonly at: number; readonly event: EventView };

/** Newest first. An event whose operation is not among the given ones stands alone. */
export function timelineOf(
  operations: readonly OperationView[],
  events: readonly EventView[],
): TimelineItem[] {
  const told = events.filter(({ type }) => type !== 'operation.phase');
  const known = new Set<string | null>(operations.map(({ id }) => id));
  const items: TimelineItem[] = [
    ...operations.map((operation) => ({
      kind: 'operation' as const,
      at: operation.startedAt,
      operation,
      events: told
        .filter(({ operationId }) => operationId === operation.id)
        .toSorted((a, b) => a.position - b.position),
    })),
    ...told
      .filter(({ operationId }) => !known.has(operationId))
      .map((event) => ({ kind: 'event' as const, at: event.at, event })),
  ];
  return items.sort((a, b) => b.at - a.at);
}
