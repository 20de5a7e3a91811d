/** Checkpoints by id. `sandboxes.checkpoints` lists those of one sandbox. */
import { type CheckpointId, type CheckpointView, checkpointViewSchema } from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';

export class Checkpoints {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  get(id: CheckpointId, options: ReadOptions = {}): Promise<CheckpointView> {
    return this.#calls.get(pathOf(id), checkpointViewSchema, options);
  }

  /** Reads the contents again; `health` of the result says whether they are intact. */
  verify(id: CheckpointId, options: MutationOptions = {}): Promise<CheckpointView> {
    return this.#calls.post(`${pathOf(id)}/verify`, checkpointViewSchema, {}, options);
  }

  async delete(id: CheckpointId, options: MutationOptions = {}): Promise<void> {
    await this.#calls.delete(pathOf(id), options);
  }
}

function pathOf(id: CheckpointId): string {
  return `/v1/checkpoints/${encodeURIComponent(id)}`;
}
