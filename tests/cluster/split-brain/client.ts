/**
 * A client with one sandbox, which asks any node of a cluster while nodes fail. It writes a growing number into the sandbox, has it
 * paused, woken and snapshotted, and remembers what it was told: a number that was in a replicated checkpoint must never be lost.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type CheckpointId, type CheckpointView, type SandboxId, Torpor, TorporError } from '@torpor/sdk';
import type { Random } from '../../seeded-random.ts';
import type { SupervisedNode } from './supervised-node.ts';

/** Longer than a pause on a busy machine, shorter than a request to a server that is stopped should take. */
const PATIENCE_MS = 20_000;

/** A checkpoint of which the client was told that it is sealed. */
export interface Acknowledged {
  readonly id: CheckpointId;
  /** It holds at least this number. */
  readonly holds: number;
  readonly replicated: boolean;
}

export class Client {
  readonly id: SandboxId;
  readonly acknowledged: Acknowledged[] = [];
  /** Errors that no fault explains. */
  readonly unexpected: string[] = [];
  readonly answers = new Map<string, number>();
  readonly #nodes: readonly SupervisedNode[];
  readonly #random: Random;
  #number = 0;
  /** The last number of which the sandbox has said that it is written, when, and by which generation. */
  #written = { number: 0, at: 0, generation: 0 };

  constructor(id: SandboxId, nodes: readonly SupervisedNode[], random: Random) {
    this.id = id;
    this.#nodes = nodes;
    this.#random = random;
  }

  /** The least number that the sandbox must have in the end. */
  get floor(): number {
    return Math.max(0, ...this.acknowledged.filter((one) => one.replicated).map((one) => one.holds));
  }

  /** The last number that the sandbox has written. Only an accident that is reported may lose it. */
  get written(): number {
    return this.#written.number;
  }

  async run(stopping: AbortSignal, everyMs: number): Promise<void> {
    while (!stopping.aborted) {
      await this.#step();
      await delay(this.#random.between(0, everyMs * 2));
    }
  }

  async #step(): Promise<void> {
    const what = this.#random.of([
      'write',
      'write',
      'pause',
      'replicate',
      'resume',
      'resume',
      'snapshot',
    ] as const);
    const torpor = this.#anyNode();
    if (torpor === undefined) return;
    try {
      await this[what](torpor);
      this.#count(`${what} ok`);
    } catch (thrown) {
      this.#judge(what, thrown);
    }
  }

  async write({ sandboxes }: Torpor): Promise<void> {
    const before = await sandboxes.get(this.id, within());
    if (before.state !== 'running') return;
    const number = ++this.#number;
    const command = `echo ${number} > .number && mv .number number`;
    const { exitCode } = await sandboxes.exec(this.id, { command }, within());
    const after = await sandboxes.get(this.id, within());
    const isSame = after.state === 'running' && after.generation === before.generation;
    if (exitCode === 0 && isSame) this.#written = { number, at: Date.now(), generation: after.generation };
  }

  async pause({ sandboxes }: Torpor): Promise<void> {
    const { checkpoint, sandbox } = await sandboxes.pause(this.id, {}, within());
    this.#remember(checkpoint, sandbox.generation);
  }

  async replicate({ sandboxes }: Torpor): Promise<void> {
    const reply = await sandboxes.pause(this.id, { durability: 'replicated' }, within());
    this.#remember({ ...reply.checkpoint, replicated: reply.replicated === true }, reply.sandbox.generation);
  }

  async resume({ sandboxes }: Torpor): Promise<void> {
    await sandboxes.resume(this.id, {}, within());
  }

  async snapshot({ sandboxes }: Torpor): Promise<void> {
    const generation = (await sandboxes.get(this.id, within())).generation;
    this.#remember(await sandboxes.snapshot(this.id, {}, within()), generation);
  }

  /** The checkpoint holds the number when it was begun after the number was written, in the same generation. */
  #remember({ id, createdAt, replicated = false }: CheckpointView, generation: number): void {
    const { number, at, generation: writtenBy } = this.#written;
    const holds = createdAt >= at && generation === writtenBy ? number : this.#heldBefore(id);
    this.acknowledged.push({ id, holds, replicated });
  }

  #heldBefore(id: CheckpointId): number {
    return this.acknowledged.find((one) => one.id === id)?.holds ?? 0;
  }

  #anyNode(): Torpor | undefined {
    const up = this.#nodes.map(({ running }) => running).filter((node) => node !== undefined);
    const chosen = this.#random.below(1_000);
    const node = up[chosen % Math.max(1, up.length)];
    return node === undefined ? undefined : new Torpor({ url: node.url, apiKey: node.apiKey, retries: 0 });
  }

  #judge(what: string, thrown: unknown): void {
    if (!(thrown instanceof TorporError)) {
      // The connection broke, or the client's patience ended.
      this.#count(`${what} ${thrown instanceof Error ? thrown.name : 'error'}`);
      return;
    }
    this.#count(`${what} ${thrown.code}`);
    if (NEVER.includes(thrown.code)) this.unexpected.push(`${what}: ${thrown.code}: ${thrown.message}`);
  }

  #count(answer: string): void {
    this.answers.set(answer, (this.answers.get(answer) ?? 0) + 1);
  }
}

/** No fault of a node, of the database or of the store is a reason for these. */
const NEVER: readonly string[] = [
  'internal',
  'not_found',
  'lost',
  'killed',
  'expired',
  'checkpoint_missing',
  'checkpoint_corrupt',
  'unauthenticated',
  'forbidden',
  'invalid_request',
];

function within(): { readonly signal: AbortSignal } {
  return { signal: AbortSignal.timeout(PATIENCE_MS) };
}
