/** Checkpoints by id. `sandboxes.checkpoints` lists those of one sandbox. */
import {
  type CheckpointId,
  type CheckpointView,
  checkpointViewSchema,
  pageSchema,
  type VerifiedCheckpointView,
  verifiedCheckpointViewSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';

const checkpointsPage = pageSchema(checkpointViewSchema);

export class Checkpoints {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  get(id: CheckpointId, options: ReadOptions = {}): Promise<CheckpointView> {
    return this.#calls.get(pathOf(id), checkpointViewSchema, options);
  }

  /** Gives it a name that no other checkpoint of its sandbox has. It then stays until it is deleted. */
  name(id: CheckpointId, name: string, options: MutationOptions = {}): Promise<CheckpointView> {
    return this.#calls.post(`${pathOf(id)}/names`, checkpointViewSchema, { name }, options);
  }

  /** The checkpoints with this name, of all sandboxes, newest first; at most 100. */
  async named(name: string, options: ReadOptions = {}): Promise<readonly CheckpointView[]> {
    const query = { name, limit: 100 };
    const { items } = await this.#calls.get('/v1/checkpoints', checkpointsPage, { query, ...options });
    return items;
  }

  /**
   * Reads the contents again; `health` of the result says whether they are intact, `unusableMemory` why intact memory cannot
   * be restored on the server's machine.
   */
  verify(id: CheckpointId, options: MutationOptions = {}): Promise<VerifiedCheckpointView> {
    return this.#calls.post(`${pathOf(id)}/verify`, verifiedCheckpointViewSchema, {}, options);
  }

  async delete(id: CheckpointId, options: MutationOptions = {}): Promise<void> {
    await this.#calls.delete(pathOf(id), options);
  }
}

function pathOf(id: CheckpointId): string {
  return `/v1/checkpoints/${encodeURIComponent(id)}`;
}
