/** A place for the data directory of a server and for the objects of its store. */
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CheckpointId, EventView, SandboxId, Torpor } from '@torpor/sdk';
import { destroyDataDirectory } from '@torpor/server';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const FLAGS = ['--log-level', 'warn', '--set', 'store.everyMs=50', '--set', 'store.retryMs=100'];

interface StartOptions {
  /** Absent: the directory `objects`. */
  readonly store?: string;
  readonly env?: Record<string, string>;
  readonly runtime?: 'process' | 'gvisor';
  readonly flags?: readonly string[];
}

export class StoreWorld {
  readonly #top: string;
  server: TorporProcess | undefined;

  private constructor(top: string) {
    this.#top = top;
  }

  static async open(): Promise<StoreWorld> {
    const world = new StoreWorld(await realpath(await mkdtemp(join(tmpdir(), 'torpor-store-'))));
    await mkdir(world.at('objects'));
    return world;
  }

  at(...names: string[]): string {
    return join(this.#top, ...names);
  }

  async start({ store, env = {}, runtime = 'process', flags = [] }: StartOptions = {}): Promise<Torpor> {
    const address = store ?? `file://${this.at('objects')}`;
    const all = ['--store', address, ...FLAGS, ...flags];
    this.server = await startTorpor(this.at('data'), env, runtime, all);
    return this.server.torpor;
  }

  async close(): Promise<void> {
    await this.server?.end();
    const { signal } = new AbortController();
    await destroyDataDirectory(this.at('data'), { force: true, signal }).catch(() => {});
    await rm(this.#top, { recursive: true, force: true });
  }

  /** Removes a sealed checkpoint as an operator's `rm` would. */
  async loseCheckpoint(id: CheckpointId): Promise<void> {
    await this.lose('sealed', id);
  }

  /** Nothing may be mounted there: a removal would reach into the mount. */
  async lose(...names: string[]): Promise<void> {
    const place = this.at('data', 'checkpoints', ...names);
    const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
    if (mounts.some((line) => line.split(' ')[1]?.startsWith(place)))
      throw new Error(`Something is mounted below ${place}.`);
    await rm(place, { recursive: true });
  }

  async eventsOf(id: SandboxId): Promise<readonly Pick<EventView, 'type' | 'data'>[]> {
    const response = await fetch(`${this.server?.url}/v1/sandboxes/${id}/events?limit=1000`, {
      headers: { 'x-api-key': this.server?.apiKey ?? '' },
    });
    return ((await response.json()) as { items: EventView[] }).items;
  }

  /** The keys of all objects in the directory `objects`, and what unfinished uploads have left there. */
  objects(kind = ''): string[] {
    const directory = this.at('objects');
    return readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1))
      .filter((key) => key.startsWith(kind))
      .sort();
  }
}

/** A paused sandbox with a file, and the answer to its pause. */
export async function sleeper({ sandboxes }: Torpor, text: string) {
  const { id } = await sandboxes.create({});
  await sandboxes.exec(id, `echo ${text} > note`);
  const reply = await sandboxes.pause(id, { durability: 'replicated' });
  return { id, reply, checkpoint: reply.checkpoint.id };
}

export async function until(what: string, isTrue: () => Promise<boolean> | boolean): Promise<void> {
  for (let tries = 0; !(await isTrue()); tries++) {
    if (tries > 1_000) throw new Error(`It never came true: ${what}`);
    await sleep(25);
  }
}

/** Kills the server at a fault point of a replication, starts it again, and waits until everything is replicated. */
export async function killDuringReplication(world: StoreWorld, point: string): Promise<void> {
  const first = await world.start({ env: { TORPOR_FAULTS: '1', TORPOR_FAULT: point } });
  await sleeper(first, 'kept').catch(() => {});
  if ((await world.server?.ended) !== 'SIGKILL') throw new Error(`The server did not pass ${point}.`);
  const torpor = await world.start();
  const { reply } = await sleeper(torpor, 'after');
  if (reply.replicated !== true) throw new Error(`It is not replicated: ${reply.replicatedReason}`);
  await until('every record has one marker, and nothing is left over', () => {
    const records = world.objects('record/').length;
    return world.objects('marker/').length === records && world.objects('.partial/').length === 0;
  });
}
