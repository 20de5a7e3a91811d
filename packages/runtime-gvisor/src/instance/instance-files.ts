/**
 * The records of instances, by which a restarted server finds them again.
 *
 * ```
 * <root>/<sandbox>/<generation>/instance.json   the record
 *                               root/           mount point of the instance's files
 *                               bundle/         the configuration for runsc
 *                               logs/           output of runsc, sentry and agent
 *                               ended.json      why the runtime ended the instance, if it did
 * ```
 */
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { errnoOf, isMissing, removeTree, writeFileDurably } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, isId, type Network, type Resources } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import type { RootKind, StackedLayer } from '../checkpoint-needs.ts';
import { readTextSync } from '../read-text-sync.ts';
import type { Container } from '../runsc/runsc-container.ts';

export interface InstanceRecord {
  readonly version: 1;
  /** Its id is also the name of the network namespace and of the control group. */
  readonly container: Container;
  /** The mount point of the instance's files. */
  readonly rootfs: string;
  readonly root: RootKind;
  readonly upper: LayerId;
  /** Newest first. */
  readonly lower: readonly StackedLayer[];
  /** Has the same content as all of `lower` but the last layer. The next checkpoint uses it instead of those. */
  readonly merged: LayerId | null;
  readonly tools: string;
  readonly system: string | null;
  /** The digest of the runsc that runs the instance. */
  readonly runsc: string;
  readonly guestAddress: string;
  /** The token that the agent asks of its callers. */
  readonly token: string;
  /** The credential that the agent asks of the server for its next configuration. */
  readonly credential: string;
  readonly network: Network;
  readonly resources: Resources;
  /** The checkpoint that `upper` was sealed for, until it is known whether that checkpoint was committed. */
  readonly sealedFor: CheckpointId | null;
}

/** Checks the shape. The server itself has checked the values before it wrote them. */
const recordSchema = z.object({
  version: z.literal(1),
  container: z.object({
    id: z.string(),
    bundle: z.string(),
    logs: z.string(),
    netns: z.string().nullable(),
    runsc: z
      .object({
        program: z.string(),
        hideNetworkSettings: z.boolean(),
        readsUntouchedMemory: z.boolean().exactOptional(),
        allowsSetuid: z.boolean().exactOptional(),
      })
      .exactOptional(),
  }),
  rootfs: z.string(),
  root: z.enum(['base', 'own']),
  upper: z.custom<LayerId>(isString),
  lower: z.array(
    z.object({ id: z.custom<LayerId>(isString), nonce: z.string(), owner: z.custom<CheckpointId>(isString) }),
  ),
  merged: z.custom<LayerId>(isString).nullable(),
  tools: z.string(),
  system: z.string().nullable(),
  /** Missing in records of earlier versions. */
  runsc: z.string().default(''),
  guestAddress: z.string(),
  token: z.string(),
  credential: z.string(),
  network: z.custom<Network>(isObject),
  resources: z.custom<Resources>(isObject),
  sealedFor: z.custom<CheckpointId>(isString).nullable(),
});

function isString(value: unknown): boolean {
  return typeof value === 'string';
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
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
    await mapWriteErrors(this.root, () => mkdir(this.root, { recursive: true, mode: 0o700 }));
  }

  paths({ sandboxId, generation }: Instance): InstancePaths {
    return pathsIn(join(this.root, sandboxId, String(generation)));
  }

  /** Creates the directory of the instance. */
  async make(instance: Instance): Promise<void> {
    const { directory } = this.paths(instance);
    await mapWriteErrors(directory, () => mkdir(directory, { recursive: true, mode: 0o700 }));
  }

  /** Undefined when there is no record, or it cannot be read. */
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
  await mapWriteErrors(rootfs, async () => {
    for (const path of [rootfs, bundle, logs]) await mkdir(path, { recursive: true, mode: 0o700 });
  });
}

/** Survives a power failure: without the record the files that the instance has written could not be found. */
async function writeRecord(path: string, record: InstanceRecord): Promise<void> {
  await mapWriteErrors(path, () => writeFileDurably(path, JSON.stringify(record)));
}

function readRecord(path: string): InstanceRecord | undefined {
  const text = readTextSync(path) ?? '';
  try {
    const record = recordSchema.safeParse(JSON.parse(text));
    return record.success ? record.data : undefined;
  } catch {
    return undefined;
  }
}
