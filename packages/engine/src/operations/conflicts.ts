/** Whether a request may begin, join or supersede beside the operation that is open on its sandbox. */
import { type OperationKind, type Reason, TorporError } from '@torpor/protocol';
import type { LifecycleRequest } from '../lifecycle.ts';
import { refusedBy } from '../refused-by.ts';
import type { Sandbox } from '../sandbox.ts';
import { canonical } from './idempotency.ts';
import type { Operation } from './operation.ts';

interface NewRequest {
  readonly kind: OperationKind;
  readonly request: Readonly<Record<string, unknown>>;
  readonly reason: Reason;
}

/** A kill that a caller asked for ends the open operation; a kill by policy is refused while it is open. */
export function supersedes(requested: NewRequest, open: Operation): boolean {
  return requested.kind === 'kill' && requested.reason === 'request' && open.kind !== 'kill';
}

/**
 * Two requests are identical when they would do the same. `timeoutSeconds` does not count: the verb extends the
 * lifetime afterwards. Two forks are never identical: each caller wants children of its own.
 */
export function isIdentical(open: Operation, requested: NewRequest): boolean {
  if (requested.kind === 'fork') return false;
  const withoutTimeout = ({ timeoutSeconds: _, ...rest }: Readonly<Record<string, unknown>>) =>
    canonical(rest);
  return open.kind === requested.kind && withoutTimeout(open.request) === withoutTimeout(requested.request);
}

export function transitioning(open: Operation): TorporError {
  return new TorporError('transitioning', `The sandbox is busy: ${open.kind} is under way.`, {
    sandboxId: open.sandboxId,
    operationId: open.id,
    retryAfterMs: 500,
    details: { kind: open.kind, phase: open.phase },
  });
}

export function refused(sandbox: Sandbox, requested: LifecycleRequest): TorporError {
  return refusedBy(sandbox, `The sandbox is ${sandbox.state}, so it cannot be asked to ${requested}.`);
}
