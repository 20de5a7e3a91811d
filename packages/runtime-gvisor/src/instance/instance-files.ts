/**
 * What is written down about instances, so that a server that was restarted finds them again.
 *
 * ```
 * <root>/<sandbox>/<generation>/instance.json   who it is
 *                               root/           where its files are mounted
 *                               bundle/         its configuration, for runsc
 *                               logs/           what runsc, sentry and agent said
 *                               ended.json      why it was ended, if it was for a reason of its own
 * ```
 */
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { errnoOf, isMissing, removeTree, writeWhole, writing } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, isId, type Network, type Resources } from '@torpor/protocol';
import type { RootKind, StackedLayer } from '../checkpoint-needs.ts';
import { readTextSync } from '../read-text-sync.ts';
import type { Container } from '../runsc/runsc.ts';

export interface InstanceRecord {
  readonly version: 1;
  /** Also the name of its network namespace and its control group. */
  readonly container: Container;
  /** Where its files are mounted. */
  readonly rootfs: string;
  readonly root: RootKind;
  readonly upper: LayerId;
  /** Newest first. */
  readonly lower: readonly StackedLayer[];
  /** Equal to all of `lower` but the last one; the next checkpoint stands on it instead. */
  readonly merged: LayerId | null;
  readonly tools: string;
  readonly system: string | null;
  /** The digest of the runsc that runs it. */
  readonly runsc: string;
  readonly guestAddress: string;
  /** What the agent asks of callers, and of the server when it is told who it is. */
  readonly token: string;
  readonly credential: string;
  readonly network: Network;
  readonly resources: Resources;
  /** The checkpoint that `upper` was sealed for, while it is not known whether that was committed. */
  readonly sealedFor: CheckpointId | null;
}

export interface InstancePaths {
  readonly directory: string;
  readonly record: string;
  readonly rootfs: string;
  readonly bundle: string;
  readonly logs: string;
  readonly ended: string;
}

export function pathsIn(directory: string): InstancePaths {
  const at = (name: string) => join(directory, name);
  return {
    directory,
    record: at('instance.json'),
    rootfs: at('root'),
    bundle: at('bundle'),
    logs: at('logs'),
    ended: at('ended.json'),
  };
}

export class InstanceFiles {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  async open(): Promise<void> {
    await writing(this.root, () => mkdir(this.root, { recursive: true, mode: 0o700 }));
  }

  paths({ sandboxId, generation }: Instance): InstancePaths {
    return pathsIn(join(this.root, sandboxId, String(generation)));
  }

  /** Its directory, for the record. */
  async make(instance: Instance): Promise<void> {
    const { directory } = this.paths(instance);
    await writing(directory, () => mkdir(directory, { recursive: true, mode: 0o700 }));
  }

  /** Undefined when there is none that can be understood. */
  read(instance: Instance): InstanceRecord | undefined {
    return readRecord(this.paths(instance).record);
  }

  write(instance: Instance, record: InstanceRecord): Promise<void> {
    return writeRecord(this.paths(instance).record, record);
  }

  async has(instance: Instance): Promise<boolean> {
    return (await this.generations(instance.sandboxId)).includes(instance.generation);
  }

  async generations(sandboxId: Instance['sandboxId']): Promise<number[]> {
    const names = await readdir(join(this.root, sandboxId)).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    });
    return names
      .filter((name) => /^[1-9][0-9]*$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  }

  async remove(instance: Instance): Promise<void> {
    await removeTree(this.paths(instance).directory);
    await rmdir(join(this.root, instance.sandboxId)).catch((thrown: unknown) => {
      if (errnoOf(thrown) === undefined) throw thrown;
    });
  }

  async *list(): AsyncGenerator<Instance> {
    for (const sandboxId of await readdir(this.root)) {
      if (!isId('sbx', sandboxId)) continue;
      for (const generation of await this.generations(sandboxId)) yield { sandboxId, generation };
    }
  }
}

export async function makeDirectories({ rootfs, bundle, logs }: InstancePaths): Promise<void> {
  await writing(rootfs, async () => {
    for (const path of [rootfs, bundle, logs]) await mkdir(path, { recursive: true, mode: 0o700 });
  });
}

/** It survives a loss of power: without it nobody could find the files that the instance had written. */
async function writeRecord(path: string, record: InstanceRecord): Promise<void> {
  await writing(path, () => writeWhole(path, JSON.stringify(record)));
}

function readRecord(path: string): InstanceRecord | undefined {
  const text = readTextSync(path) ?? '';
  try {
    const record = JSON.parse(text) as InstanceRecord;
    return record.version === 1 ? record : undefined;
  } catch {
    return undefined;
  }
}
