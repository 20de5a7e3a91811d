/**
 * Which sandbox of the provider is which instance of ours, and which belongs to a checkpoint. A provider keeps one
 * id over every sleep, so that it cannot say which generation it is; these files can.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { type CheckpointId, parseSandboxId, type SandboxId } from '@torpor/protocol';
import { writeWhole } from '../durable.ts';
import { isMissing } from '../storage-failure.ts';
import { Turns } from '../turns.ts';
import type { Reached } from './provider.ts';

export interface InstanceRecord {
  readonly providerId: string;
  readonly reached: Reached | null;
  readonly state: 'starting' | 'running' | 'frozen';
  /** The checkpoint that it has become, once it was captured. */
  readonly captured: CheckpointId | null;
}

export class Records {
  private readonly instances: string;
  private readonly checkpoints: string;
  private readonly turns = new Turns<string>();

  constructor(directory: string) {
    this.instances = join(directory, 'instances');
    this.checkpoints = join(directory, 'checkpoints');
  }

  find(instance: Instance): Promise<InstanceRecord | undefined> {
    return read<InstanceRecord>(join(this.instances, nameOf(instance)));
  }

  write(instance: Instance, record: InstanceRecord): Promise<void> {
    return this.put(this.instances, nameOf(instance), record);
  }

  forget(instance: Instance): Promise<void> {
    return rm(join(this.instances, nameOf(instance)), { force: true });
  }

  async *all(): AsyncGenerator<Instance & { readonly record: InstanceRecord }> {
    for (const name of await namesIn(this.instances)) {
      const [, id, generation] = /^([a-z0-9]{20})-(\d+)\.json$/.exec(name) ?? [];
      const sandboxId = id === undefined ? undefined : (parseSandboxId(id) as SandboxId);
      if (sandboxId === undefined) continue;
      const instance = { sandboxId, generation: Number(generation) };
      const record = await this.find(instance);
      if (record !== undefined) yield { ...instance, record };
    }
  }

  /** Whether an instance other than this one stands on it. */
  async isUsed(providerId: string, but?: Instance): Promise<boolean> {
    for await (const { record, sandboxId, generation } of this.all()) {
      if (record.providerId !== providerId) continue;
      if (sandboxId !== but?.sandboxId || generation !== but.generation) return true;
    }
    return false;
  }

  keep(id: CheckpointId, providerId: string): Promise<void> {
    return this.put(this.checkpoints, `${id}.json`, { providerId });
  }

  async kept(id: CheckpointId): Promise<string | undefined> {
    return (await read<{ providerId: string }>(join(this.checkpoints, `${id}.json`)))?.providerId;
  }

  letGo(id: CheckpointId): Promise<void> {
    return rm(join(this.checkpoints, `${id}.json`), { force: true });
  }

  async isKept(providerId: string): Promise<boolean> {
    for (const name of await namesIn(this.checkpoints)) {
      if ((await read<{ providerId: string }>(join(this.checkpoints, name)))?.providerId === providerId)
        return true;
    }
    return false;
  }

  /** They hold tokens: for the server's own eyes. */
  private put(directory: string, name: string, value: unknown): Promise<void> {
    const path = join(directory, name);
    return this.turns.take(path, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await writeWhole(path, JSON.stringify(value));
    });
  }
}

/** None where there is no directory yet. One that cannot be read may hold what must not be ended. */
async function namesIn(directory: string): Promise<string[]> {
  return (
    await readdir(directory).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    })
  ).filter((name) => name.endsWith('.json'));
}

function nameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId.slice('sbx_'.length)}-${generation}.json`;
}

async function read<T>(path: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as T;
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}
