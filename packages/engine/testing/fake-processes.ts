/** Processes in memory. The test starts them and decides how they end. */
import { TorporError } from '@torpor/protocol';
import type { ProcessEnd, Processes, TaggedProcess } from '../src/ports/processes.ts';

export class FakeProcesses implements Processes {
  readonly #running = new Map<string, TaggedProcess>();
  readonly #ends = new Map<string, ProcessEnd>();
  readonly #waiting = new Set<() => void>();
  /** Whether the agent answers. */
  reachable = true;
  /** Whether the agent supports waiting for an end. */
  canWait = true;

  run(tag: string, pid = this.#running.size + 1): void {
    this.#running.set(tag, { tag, pid, command: tag, cwd: null });
  }

  /** Without `end` the process disappears, and the agent does not know how it ended. */
  end(tag: string, end?: ProcessEnd): void {
    this.#running.delete(tag);
    if (end !== undefined) this.#ends.set(tag, end);
    for (const check of [...this.#waiting]) check();
  }

  async list(): Promise<readonly TaggedProcess[]> {
    if (!this.reachable) throw new TorporError('unreachable', 'The agent does not answer.');
    return [...this.#running.values()];
  }

  async endOf(_: unknown, tag: string): Promise<ProcessEnd | null> {
    return this.#ends.get(tag) ?? null;
  }

  nextEnd(
    _: unknown,
    tags: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly tag: string; readonly end: ProcessEnd | null }> {
    if (!this.canWait) return Promise.reject(new TorporError('capability_unsupported', 'It cannot wait.'));
    return new Promise((resolve, reject) => {
      const check = () => {
        const tag = tags.find((one) => !this.#running.has(one));
        if (tag === undefined) return;
        this.#waiting.delete(check);
        resolve({ tag, end: this.#ends.get(tag) ?? null });
      };
      this.#waiting.add(check);
      signal.addEventListener('abort', () => {
        this.#waiting.delete(check);
        reject(signal.reason);
      });
      check();
    });
  }
}
