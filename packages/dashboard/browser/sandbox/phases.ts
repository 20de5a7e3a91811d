/** How long each phase of an operation took. A phase ends when the next is recorded. */
import type { OperationView } from '@torpor/sdk';

export interface Phase {
  /** The phase that was reached at the end of this time. */
  readonly name: string;
  readonly ms: number;
}

export function phasesOf({ phases, startedAt, endedAt }: OperationView): Phase[] {
  let before = startedAt;
  const reached = phases.map(({ phase, at }) => {
    const ms = Math.max(0, at - before);
    before = at;
    return { name: phase, ms };
  });
  return endedAt === null ? reached : [...reached, { name: 'finished', ms: Math.max(0, endedAt - before) }];
}
