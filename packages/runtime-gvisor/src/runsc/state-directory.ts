/**
 * The directory in which runsc keeps what it knows: for each container a state file, a lock and the socket
 * that its sentry listens on. Only names and the two fields that are needed here are relied upon.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { readTextSync } from '../read-text-sync.ts';

export interface RecordedState {
  readonly status: string;
  /** Of the sentry; 0 when there was none yet. */
  readonly pid: number;
}

const LOOK_EVERY_MS = 5;
/** Longer than runsc takes to write a few kilobytes. */
const LOOKS = 200;

export class StateDirectory {
  readonly #path: string;
  readonly #clock: Clock;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /** Every container that there is a file of. */
  async containers(): Promise<string[]> {
    const names = await readdir(this.#path).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    });
    return [...new Set(names.flatMap((name) => containerOf(name) ?? []))];
  }

  async has(id: string): Promise<boolean> {
    return stat(join(this.#path, stateFile(id))).then(
      () => true,
      (thrown: unknown) => {
        if (isMissing(thrown)) return false;
        throw thrown;
      },
    );
  }

  /** Undefined when there is no such container. runsc empties the file before it writes it anew. */
  async read(id: string): Promise<RecordedState | undefined> {
    for (let looks = 0; looks < LOOKS; looks++) {
      const text = readTextSync(join(this.#path, stateFile(id)));
      if (text === undefined) return undefined;
      const remembered = parseState(text);
      if (remembered !== undefined) return remembered;
      await this.#clock.sleep(LOOK_EVERY_MS);
    }
    throw new TorporError('unreachable', `What runsc has written down about ${id} cannot be read.`, {
      details: { container: id },
    });
  }

  /** Taken by every command of runsc before it looks at the container. */
  lockOf(id: string): string {
    return join(this.#path, lockFile(id));
  }

  /** Removes what is remembered of a container whose processes have ended. Absent is fine. */
  async forget(id: string): Promise<void> {
    const files = [stateFile(id), lockFile(id), `runsc-${id}.sock`];
    for (const file of files) await rm(join(this.#path, file), { force: true });
  }
}

function parseState(text: string): RecordedState | undefined {
  try {
    const { status, sandbox } = JSON.parse(text) as {
      readonly status: string;
      readonly sandbox?: { readonly pid?: number };
    };
    return { status, pid: sandbox?.pid ?? 0 };
  } catch {
    return undefined;
  }
}

function stateFile(id: string): string {
  return `${id}_sandbox:${id}.state`;
}

function lockFile(id: string): string {
  return `${id}_sandbox:${id}.lock`;
}

function containerOf(name: string): string | undefined {
  const [, id] = /^(.+)_sandbox:\1\.(?:state|lock)$/.exec(name) ?? /^runsc-(.+)\.sock$/.exec(name) ?? [];
  return id;
}
