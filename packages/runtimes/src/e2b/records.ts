/**
 * Which sandbox of the provider is which instance of ours, and which belongs to a checkpoint. A provider keeps one
 * id over every sleep, so that it cannot say which generation it is; these files can.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { type CheckpointId, parseSandboxId, type SandboxId } from '@torpor/protocol';
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

  constructor(directory: string) {
    this.instances = join(directory, 'instances');
    this.checkpoints = join(directory, 'checkpoints');
  }

  find(instance: Instance): Promise<InstanceRecord | undefined> {
    return read<InstanceRecord>(join(this.instances, nameOf(instance)));
  }

  write(instance: Instance, record: InstanceRecord): Promise<void> {
    return write(this.instances, nameOf(instance), record);
  }

  forget(instance: Instance): Promise<void> {
    return rm(join(this.instances, nameOf(instance)), { force: true });
  }

  async *all(): AsyncGenerator<Instance & { readonly record: InstanceRecord }> {
    for (const name of await readdir(this.instances).catch(() => [])) {
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
    return write(this.checkpoints, `${id}.json`, { providerId });
  }

  async kept(id: CheckpointId): Promise<string | undefined> {
    return (await read<{ providerId: string }>(join(this.checkpoints, `${id}.json`)))?.providerId;
  }

  letGo(id: CheckpointId): Promise<void> {
    return rm(join(this.checkpoints, `${id}.json`), { force: true });
  }

  async isKept(providerId: string): Promise<boolean> {
    for (const name of await readdir(this.checkpoints).catch(() => [])) {
      if ((await read<{ providerId: string }>(join(this.checkpoints, name)))?.providerId === providerId)
        return true;
    }
    return false;
  }
}

function nameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId.slice('sbx_'.length)}-${generation}.json`;
}

async function read<T>(path: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as T;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw thrown;
  }
}

/** They hold tokens: for the server's own eyes. */
async function write(directory: string, name: string, value: unknown): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const fresh = join(directory, `${name}.${randomBytes(4).toString('hex')}.new`);
  const file = await open(fresh, 'w', 0o600);
  try {
    await file.writeFile(JSON.stringify(value));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(fresh, join(directory, name));
}
