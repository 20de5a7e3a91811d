/**
 * The expected state of each sandbox, tracked by the test: what its programs wrote, which accidents may have lost files,
 * and what callers were told.
 */
import type { SandboxId } from '@torpor/protocol';

export interface ExpectedState {
  /** The files that its programs wrote. Null while this is unknown, because an answer was lost. */
  files: Map<string, string> | null;
  /** Files that were written before a caller knew that the sandbox runs. They may exist or not. */
  readonly unpromised: Set<string>;
  /** The counter that its program has in memory. Null when its processes may have ended. */
  counter: number | null;
  /** An accident may have lost files: they were removed, or a checkpoint was damaged. */
  mayLoseFiles: boolean;
  killed: boolean;
  /** The seq of the last checked event. */
  seen: number;
}

export class ExpectedStates {
  readonly #of = new Map<SandboxId, ExpectedState>();

  add(id: SandboxId, from: Omit<ExpectedState, 'unpromised' | 'seen'> | null): ExpectedState {
    const state: ExpectedState = {
      files: from === null ? new Map([['/etc/motd', 'welcome']]) : from.files && new Map(from.files),
      unpromised: new Set(),
      counter: from === null ? 0 : from.counter,
      mayLoseFiles: from?.mayLoseFiles ?? false,
      killed: false,
      seen: 0,
    };
    this.#of.set(id, state);
    return state;
  }

  get(id: SandboxId): ExpectedState {
    const state = this.#of.get(id);
    // The sandbox was created by a request whose answer was lost, so nothing is known about it.
    return state ?? this.add(id, { files: null, counter: null, mayLoseFiles: true, killed: false });
  }
}
