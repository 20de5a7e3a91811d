/** The trace of one operation: a span for the operation, and within it one span for each phase. Phases follow each other. */
import { type OperationKind, type SandboxId, TorporError } from '@torpor/protocol';
import type { Span, Tracing } from '../ports/tracing.ts';
import type { Operation } from './operation.ts';

/** In the order of a pause, a start and a kill. `undo` follows a seal that failed. */
type TracePhase =
  | 'accept'
  | 'drain'
  | 'sync'
  | 'freeze'
  | 'capture'
  | 'seal'
  | 'undo'
  | 'thaw'
  | 'clear'
  | 'inspect'
  | 'start'
  | 'observe'
  | 'recover'
  | 'destroy'
  | 'commit'
  | 'open';

/** How a request ended that did not become an operation of its own. */
type WithoutOperation = 'already' | 'joined' | 'replayed' | 'refused';

export class OperationTrace {
  readonly span: Span;
  #phase: Span | undefined;

  /** Without a parent the operation begins a trace of its own. */
  constructor(
    tracing: Tracing,
    parent: Span | undefined,
    facts: { readonly kind: OperationKind; readonly sandboxId: SandboxId; readonly org: string },
  ) {
    this.span = (parent ?? tracing).begin(facts.kind, {
      'torpor.operation.kind': facts.kind,
      'torpor.sandbox.id': facts.sandboxId,
      'torpor.org': facts.org,
    });
  }

  /** Ends the phase before. */
  enter(phase: TracePhase): void {
    this.#phase?.end();
    this.#phase = this.span.begin(phase);
  }

  /** Marks the current phase as failed and ends it. */
  fail(thrown: unknown): void {
    this.#phase?.end(TorporError.from(thrown));
    this.#phase = undefined;
  }

  name({ id, reason, fence }: Operation): void {
    this.span.set({
      'torpor.operation.id': id,
      'torpor.operation.reason': reason,
      // A greater fence: another server began the operation, or this server before a restart.
      'torpor.operation.taken_over': fence > 1,
    });
  }

  /** `undefined`: this server may not end the operation, or cannot read how it ended. */
  endOperation(operation: Operation | undefined): void {
    const { outcome = null, error = null, result = null } = operation ?? {};
    const checkpointId = result !== null && 'checkpointId' in result ? result.checkpointId : undefined;
    this.span.set({
      'torpor.operation.outcome': outcome ?? 'open',
      'torpor.checkpoint.id': checkpointId ?? undefined,
    });
    this.#phase?.end();
    this.span.end(error ?? undefined);
  }

  endWithoutOperation(outcome: WithoutOperation, id?: Operation['id'], thrown?: unknown): void {
    this.span.set({ 'torpor.operation.outcome': outcome, 'torpor.operation.id': id });
    const error = thrown === undefined ? undefined : TorporError.from(thrown);
    this.#phase?.end(error);
    this.span.end(error);
  }
}
