/**
 * Which sandbox of the provider is which instance of ours, and which belongs to a checkpoint. A provider keeps one
 * id over every sleep, so that it cannot say which generation it is; these files can.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { isMissing, KeyedMutex, writeFileDurably } from '@torpor/host';
import { type CheckpointId, parseSandboxId, type SandboxId } from '@torpor/protocol';
import type { Reached } from './provider.ts';

export interface InstanceRecord {
  readonly providerId: string;
  readonly reached: Reached | null;
  /**
   * What was last done with it, which is written before it is done: `frozen` for a pause, so that the provider puts
   * it to sleep; `held` for a snapshot, so that it runs at the provider while nobody here is let in.
   */
  readonly state: 'starting' | 'running' | 'frozen' | 'held';
  /** The sleeper that it is started from, as long as that is not seen to be awake. */
  readonly from?: CheckpointId;
  /** The checkpoint that it has become, once it was captured. */
  readonly captured: CheckpointId | null;
}

/** What a checkpoint has at the provider: a sandbox of its own that sleeps, or a snapshot of one that runs on. */
export type CheckpointRecord = { readonly providerId: string } | { readonly snapshotOf: string };

export class Records {
  private readonly instances: string;
  private readonly checkpoints: string;
  private readonly turns = new KeyedMutex<string>();

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

  async *all(only?: SandboxId): AsyncGenerator<Instance & { readonly record: InstanceRecord }> {
    for (const name of await namesIn(this.instances)) {
      const [, id, generation] = /^([a-z0-9]{20})-(\d+)\.json$/.exec(name) ?? [];
      const sandboxId = id === undefined ? undefined : (parseSandboxId(id) as SandboxId);
      if (sandboxId === undefined || sandboxId !== (only ?? sandboxId)) continue;
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

  keep(id: CheckpointId, record: CheckpointRecord): Promise<void> {
    return this.put(this.checkpoints, `${id}.json`, record);
  }

  kept(id: CheckpointId): Promise<CheckpointRecord | undefined> {
    return read<CheckpointRecord>(join(this.checkpoints, `${id}.json`));
  }

  letGo(id: CheckpointId): Promise<void> {
    return rm(join(this.checkpoints, `${id}.json`), { force: true });
  }

  async isKept(providerId: string): Promise<boolean> {
    return (await this.sleepers()).has(providerId);
  }

  /** Every sandbox of the provider that is an instance or a checkpoint. */
  async known(): Promise<Set<string>> {
    const ids = await this.sleepers();
    for await (const { record } of this.all()) ids.add(record.providerId);
    return ids;
  }

  private async sleepers(): Promise<Set<string>> {
    const ids = new Set<string>();
    for (const name of await namesIn(this.checkpoints)) {
      const record = await read<CheckpointRecord>(join(this.checkpoints, name));
      if (record !== undefined && 'providerId' in record) ids.add(record.providerId);
    }
    return ids;
  }

  /** They hold tokens: for the server's own eyes. */
  private put(directory: string, name: string, value: unknown): Promise<void> {
    const path = join(directory, name);
    return this.turns.run(path, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await writeFileDurably(path, JSON.stringify(value));
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
