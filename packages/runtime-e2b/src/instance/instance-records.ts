/**
 * Records which sandbox of the provider belongs to which instance or checkpoint. A sandbox of the provider keeps its id
 * over every pause, so the provider cannot tell generations apart; these files can.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { isMissing, KeyedMutex, writeFileDurably } from '@torpor/host';
import { type CheckpointId, idSchema, parseSandboxId, type SandboxId } from '@torpor/protocol';
import { z } from 'zod';
import { connectionSchema } from '../provider/provider.ts';

const instanceSchema = z.object({
  providerId: z.string(),
  /** The connection to the sandbox. Null until the server has connected. */
  reached: connectionSchema.nullable(),
  /**
   * The last change, written before it is made. `frozen` is for a pause: the provider pauses the sandbox. `held` is for a
   * snapshot: the sandbox runs at the provider, but requests to it are refused.
   */
  state: z.enum(['starting', 'running', 'frozen', 'held']),
  /** The paused checkpoint from which the instance starts, until the sandbox is seen running. */
  from: idSchema('ckpt').optional(),
  /** The checkpoint that the paused sandbox has become. */
  captured: idSchema('ckpt').nullable(),
});

/** What a checkpoint has at the provider: a paused sandbox, or a snapshot of a running one. */
const checkpointSchema = z.union([
  z.object({ providerId: z.string() }),
  z.object({ snapshotOf: z.string() }),
]);

export type InstanceRecord = Readonly<z.infer<typeof instanceSchema>>;
export type CheckpointRecord = Readonly<z.infer<typeof checkpointSchema>>;

export class InstanceRecords {
  readonly #instances: string;
  readonly #checkpoints: string;
  readonly #mutex = new KeyedMutex<string>();

  constructor(directory: string) {
    this.#instances = join(directory, 'instances');
    this.#checkpoints = join(directory, 'checkpoints');
  }

  find(instance: Instance): Promise<InstanceRecord | undefined> {
    return read(join(this.#instances, fileNameOf(instance)), instanceSchema);
  }

  write(instance: Instance, record: InstanceRecord): Promise<void> {
    return this.#write(this.#instances, fileNameOf(instance), record);
  }

  remove(instance: Instance): Promise<void> {
    return rm(join(this.#instances, fileNameOf(instance)), { force: true });
  }

  async *all(only?: SandboxId): AsyncGenerator<Instance & { readonly record: InstanceRecord }> {
    for (const name of await namesIn(this.#instances)) {
      const [, id, generation] = /^([a-z0-9]{20})-(\d+)\.json$/.exec(name) ?? [];
      const sandboxId = id === undefined ? undefined : parseSandboxId(id);
      if (sandboxId === undefined || sandboxId !== (only ?? sandboxId)) continue;
      const instance = { sandboxId, generation: Number(generation) };
      const record = await this.find(instance);
      if (record !== undefined) yield { ...instance, record };
    }
  }

  /** Whether an instance uses this sandbox of the provider; `except` is not counted. */
  async isUsed(providerId: string, except?: Instance): Promise<boolean> {
    for await (const { record, sandboxId, generation } of this.all()) {
      if (record.providerId !== providerId) continue;
      if (sandboxId !== except?.sandboxId || generation !== except.generation) return true;
    }
    return false;
  }

  writeCheckpoint(id: CheckpointId, record: CheckpointRecord): Promise<void> {
    return this.#write(this.#checkpoints, `${id}.json`, record);
  }

  findCheckpoint(id: CheckpointId): Promise<CheckpointRecord | undefined> {
    return read(join(this.#checkpoints, `${id}.json`), checkpointSchema);
  }

  removeCheckpoint(id: CheckpointId): Promise<void> {
    return rm(join(this.#checkpoints, `${id}.json`), { force: true });
  }

  /** Whether this sandbox of the provider is a checkpoint. */
  async isCheckpoint(providerId: string): Promise<boolean> {
    return (await this.#pausedIds()).has(providerId);
  }

  /** The ids of all sandboxes of the provider that are an instance or a checkpoint. */
  async recordedIds(): Promise<Set<string>> {
    const ids = await this.#pausedIds();
    for await (const { record } of this.all()) ids.add(record.providerId);
    return ids;
  }

  async #pausedIds(): Promise<Set<string>> {
    const ids = new Set<string>();
    for (const name of await namesIn(this.#checkpoints)) {
      const record = await read(join(this.#checkpoints, name), checkpointSchema);
      if (record !== undefined && 'providerId' in record) ids.add(record.providerId);
    }
    return ids;
  }

  /** The records contain tokens, so only the server's user may read them. */
  #write(directory: string, name: string, value: unknown): Promise<void> {
    const path = join(directory, name);
    return this.#mutex.run(path, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await writeFileDurably(path, JSON.stringify(value));
    });
  }
}

/** Empty when the directory does not exist yet. Throws when it cannot be read: it may name sandboxes that must not be killed. */
async function namesIn(directory: string): Promise<string[]> {
  return (
    await readdir(directory).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    })
  ).filter((name) => name.endsWith('.json'));
}

function fileNameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId.slice('sbx_'.length)}-${generation}.json`;
}

async function read<T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> {
  try {
    return schema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}
