/** A node whose server is started again whenever it ends, as systemd does. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClusterNode, ClusterWorld } from '../cluster-world.ts';

const RESTART_MS = 500;

export class SupervisedNode {
  readonly name: string;
  /** Undefined while the server does not run, or is not ready. */
  running: ClusterNode | undefined;
  /** Before the next start; then the usual time again. */
  restartAfterMs = RESTART_MS;
  starts = 0;
  /** Undefined before the first start. */
  dataDir: string | undefined;
  /** Why a start has failed. */
  readonly refusals: string[] = [];
  #stopping = false;
  readonly #supervision: Promise<void>;

  constructor(world: ClusterWorld, name: string) {
    this.name = name;
    this.#supervision = this.#supervise(world);
  }

  /** Resolves when the server answers. */
  async ready(): Promise<ClusterNode> {
    for (;;) {
      if (this.running !== undefined) return this.running;
      if (this.starts === 0 && this.refusals.length > 20) throw new Error(this.refusals.at(-1));
      await delay(50);
    }
  }

  /** The next end of the server is its last. */
  async release(): Promise<void> {
    this.#stopping = true;
    if (this.running === undefined) await this.#supervision;
  }

  async #supervise(world: ClusterWorld): Promise<void> {
    while (!this.#stopping) {
      try {
        this.running = await world.start(this.name);
        this.starts++;
        this.dataDir = this.running.dataDir;
      } catch (thrown) {
        this.refusals.push(String(thrown));
        await delay(RESTART_MS);
        continue;
      }
      await this.running.ended;
      this.running = undefined;
      const pause = this.restartAfterMs;
      this.restartAfterMs = RESTART_MS;
      if (!this.#stopping) await delay(pause);
    }
  }
}

/** The process of the guard of the server that has this data directory. */
export async function guardOf(dataDir: string): Promise<number | undefined> {
  const text = await readFile(join(dataDir, 'guard.json'), 'utf8').catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as { pid: number }).pid;
}
