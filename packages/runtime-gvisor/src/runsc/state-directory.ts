/**
 * The directory in which runsc keeps its state: for each container a state file, a lock, and the socket on which the
 * sentry listens. This code relies only on the file names and on the two fields of `RecordedState`.
 */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { readTextSync } from '../read-text-sync.ts';

export interface RecordedState {
  readonly status: string;
  /** Of the sentry; 0 while there is none. */
  readonly pid: number;
}

/** The state file of runsc, as far as it is read here. */
const stateFileSchema = z.object({
  status: z.string(),
  sandbox: z.object({ pid: z.number().nullish() }).nullish(),
});

/** The output of `runsc state`, as far as it is read here. */
const stateOutputSchema = z.object({ status: z.string(), pid: z.number().default(0) });

const POLL_MS = 5;
/** Together longer than runsc takes to write a few kilobytes. */
const MAX_POLLS = 200;

export class StateDirectory {
  readonly #path: string;
  readonly #clock: Clock;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /** Every container that has a file here. */
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

  /** Undefined when there is no such container. Polls, because runsc empties the file before it writes it again. */
  async read(id: string): Promise<RecordedState | undefined> {
    for (let polls = 0; polls < MAX_POLLS; polls++) {
      const text = readTextSync(join(this.#path, stateFile(id)));
      if (text === undefined) return undefined;
      const recorded = parseStateFile(text);
      if (recorded !== undefined) return recorded;
      await this.#clock.sleep(POLL_MS);
    }
    throw new TorporError('unreachable', `The state file that runsc keeps of ${id} cannot be read.`, {
      details: { container: id },
    });
  }

  /** The socket on which the sentry takes calls. */
  socketOf(id: string): string {
    return join(this.#path, socketFile(id));
  }

  /**
   * Records that a container runs or is paused, as `runsc resume` and `runsc pause` do. A command of runsc for the container
   * may wait for its lock meanwhile, but none may go on. The rest of the file stays as runsc wrote it.
   */
  writeStatus(id: string, status: 'running' | 'paused'): void {
    const path = join(this.#path, stateFile(id));
    const recorded = z.looseObject({ status: z.string() }).parse(JSON.parse(readFileSync(path, 'utf8')));
    const written = `${path}.tmp`;
    writeFileSync(written, JSON.stringify({ ...recorded, status }), { mode: 0o640 });
    renameSync(written, path);
  }

  /**
   * Notes that the sentry is about to be asked to freeze its guest. A server that dies before `removeFreezingNote` leaves the
   * note. It need not be durable: when the host crashes, the sentry ends too.
   */
  noteFreezing(id: string): void {
    writeFileSync(join(this.#path, freezingFile(id)), '', { mode: 0o640 });
  }

  isNotedAsFreezing(id: string): boolean {
    return existsSync(join(this.#path, freezingFile(id)));
  }

  removeFreezingNote(id: string): void {
    rmSync(join(this.#path, freezingFile(id)), { force: true });
  }

  /** The file that every command of runsc locks before it looks at the container. */
  lockOf(id: string): string {
    return join(this.#path, lockFile(id));
  }

  /** Removes the files of a container whose processes have ended. An absent container is fine. */
  async delete(id: string): Promise<void> {
    const files = [stateFile(id), `${stateFile(id)}.tmp`, lockFile(id), socketFile(id), freezingFile(id)];
    for (const file of files) await rm(join(this.#path, file), { force: true });
  }
}

/** Undefined while runsc writes the file. */
function parseStateFile(text: string): RecordedState | undefined {
  const parsed = stateFileSchema.safeParse(parseJson(text));
  return parsed.success ? { status: parsed.data.status, pid: parsed.data.sandbox?.pid ?? 0 } : undefined;
}

/** Parses the output of `runsc state`. */
export function parseStateOutput(stdout: string): RecordedState {
  const parsed = stateOutputSchema.safeParse(parseJson(stdout));
  if (parsed.success) return parsed.data;
  throw new TorporError('internal', 'runsc state printed no state.', {
    details: { stdout: stdout.slice(0, 500) },
    cause: parsed.error,
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
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

function socketFile(id: string): string {
  return `runsc-${id}.sock`;
}

/** Not a file of runsc, which reads only files with names of its own. */
function freezingFile(id: string): string {
  return `${id}.freezing`;
}

function containerOf(name: string): string | undefined {
  const [, id] = /^(.+)_sandbox:\1\.(?:state|lock)$/.exec(name) ?? /^runsc-(.+)\.sock$/.exec(name) ?? [];
  return id;
}
