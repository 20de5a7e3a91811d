/**
 * The beats of sandboxes in gVisor. The program in a sandbox writes and syncs a line twice a second; the lines are read on the
 * host, from the writable layer of the instance, so that no network is between. A run is a container: the process in it may go
 * on through several generations.
 *
 * The file of a layer stays open until the reader stops: an instance that beats after its record and its layer were removed is
 * seen too.
 */
import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import type { Beat } from './beats.ts';

const FILE = '.beats';
const HOME = 'home/user';
const EVERY_MS = 200;

export const GVISOR_BEAT_COMMAND = `node -e "const f=require('fs');const d=f.openSync('/${HOME}/${FILE}','a');setInterval(()=>{f.writeSync(d,Date.now()+'\\n');f.fsyncSync(d)},500)"`;

interface BeatFile {
  readonly sandbox: string;
  readonly run: string;
  readonly descriptor: number;
  offset: number;
  /** The beginning of a line of which the end was not there yet. */
  rest: string;
}

export class GvisorBeatReader {
  readonly #dataDirs: () => readonly string[];
  readonly #files = new Map<string, BeatFile>();
  /** By sandbox and time: a layer that copies a file up has the lines of the layer below it again. */
  readonly #beats = new Map<string, Map<number, Beat>>();
  readonly #timer: NodeJS.Timeout;

  constructor(dataDirs: () => readonly string[]) {
    this.#dataDirs = dataDirs;
    this.#timer = setInterval(() => this.#look(), EVERY_MS);
  }

  /** How many beats were read. */
  get seen(): number {
    return [...this.#beats.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** Ends the reading, and returns the beats of each sandbox. */
  stop(): ReadonlyMap<string, readonly Beat[]> {
    clearInterval(this.#timer);
    this.#look();
    for (const { descriptor } of this.#files.values()) closeSync(descriptor);
    this.#files.clear();
    return new Map([...this.#beats].map(([sandbox, beats]) => [sandbox, [...beats.values()]]));
  }

  #look(): void {
    for (const dataDir of this.#dataDirs()) {
      const instances = join(dataDir, 'gvisor', 'instances');
      for (const sandbox of namesIn(instances)) {
        for (const generation of namesIn(join(instances, sandbox))) {
          this.#open(dataDir, sandbox, join(instances, sandbox, generation, 'instance.json'));
        }
      }
    }
    for (const file of this.#files.values()) this.#read(file);
  }

  #open(dataDir: string, sandbox: string, record: string): void {
    const text = ifThere(() => readFileSync(record, 'utf8'));
    // The record is one checksummed line of JSON, which is not parsed here.
    const upper = /"upper":"(lay_[^"]+)"/.exec(text ?? '')?.[1];
    const container = /"container":\{"id":"([^"]+)"/.exec(text ?? '')?.[1];
    if (upper === undefined || container === undefined || this.#files.has(upper)) return;
    const path = join(dataDir, 'checkpoints', 'layers', upper, 'fs', HOME, FILE);
    const descriptor = ifThere(() => openSync(path, 'r'));
    if (descriptor === undefined) return;
    this.#files.set(upper, { sandbox, run: container, descriptor, offset: 0, rest: '' });
  }

  #read(file: BeatFile): void {
    const buffer = Buffer.alloc(64 * 1024);
    for (;;) {
      const count = readSync(file.descriptor, buffer, 0, buffer.length, file.offset);
      if (count === 0) return;
      file.offset += count;
      const lines = (file.rest + buffer.toString('latin1', 0, count)).split('\n');
      file.rest = lines.pop() ?? '';
      const known = this.#beats.get(file.sandbox) ?? new Map<number, Beat>();
      this.#beats.set(file.sandbox, known);
      for (const at of lines.map(Number)) if (!known.has(at)) known.set(at, { at, run: file.run });
    }
  }
}

function namesIn(directory: string): string[] {
  return ifThere(() => readdirSync(directory)) ?? [];
}

function ifThere<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (thrown) {
    if (['ENOENT', 'ENOTDIR'].includes((thrown as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw thrown;
  }
}
