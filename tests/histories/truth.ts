/**
 * What must be so, kept beside the world by somebody who sees everything: what the programs inside wrote,
 * which accidents could have lost it, and what callers were told.
 */
import type { SandboxId } from '@torpor/protocol';

export interface Truth {
  /** What its programs have written; null while nobody can say, because an answer got lost. */
  files: Map<string, string> | null;
  /** What they wrote while nobody had been told that it runs: it may be there or not. */
  readonly unpromised: Set<string>;
  /** How often its program counted in memory; null when its processes may have ended. */
  counter: number | null;
  /** An accident happened that may cost files: they were taken away, or a checkpoint was damaged. */
  mayLoseFiles: boolean;
  killed: boolean;
  /** The last event that was looked at. */
  seen: number;
}

export class Truths {
  readonly #of = new Map<SandboxId, Truth>();

  born(id: SandboxId, from: Omit<Truth, 'unpromised' | 'seen'> | null): Truth {
    const truth: Truth = {
      files: from === null ? new Map([['/etc/motd', 'welcome']]) : from.files && new Map(from.files),
      unpromised: new Set(),
      counter: from === null ? 0 : from.counter,
      mayLoseFiles: from?.mayLoseFiles ?? false,
      killed: false,
      seen: 0,
    };
    this.#of.set(id, truth);
    return truth;
  }

  get(id: SandboxId): Truth {
    const truth = this.#of.get(id);
    // Made by a request whose answer got lost: nothing was promised about it.
    return truth ?? this.born(id, { files: null, counter: null, mayLoseFiles: true, killed: false });
  }
}
