/**
 * The records of instances, by which a restarted server finds them again.
 *
 * ```
 * <root>/<sandbox>/<generation>/instance.json   the record
 *                               ended.json      why the runtime ended the instance, if it did
 * ```
 *
 * The mount point of the files (`root/`), the configuration for runsc (`bundle/`) and the output of runsc, sentry and agent
 * (`logs/`) lie in the directory of the container (`newUnassignedPaths`). The record names them. An instance of an earlier
 * version may have them beside its record.
 */
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Instance, LayerReference } from '@torpor/engine';
import {
  errnoOf,
  isMissing,
  type ReplacedFile,
  removeTree,
  replaceFile,
  writeFileDurably,
} from '@torpor/host';
import { type LayerId, layerReferenceSchema } from '@torpor/layers';
import { type CheckpointId, isId, type Network, type Resources } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import type { RootKind } from '../checkpoint-needs.ts';
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
  readonly lower: readonly LayerReference[];
  /** The page layers of the memory that the instance was started from. The next checkpoint refers to them. */
  readonly pages: readonly LayerReference[];
  /** Has the same content as all of `lower` but the last layer. The next checkpoint uses it instead of those. */
  readonly merged: LayerId | null;
  readonly tools: string;
  readonly system: string | null;
  /** The digest of the runsc that runs the instance. */
  readonly runsc: string;
  readonly guestAddress: string;
  /** Callers of the agent must send this token. */
  readonly token: string;
  /** The server must send this credential with its next `/init`. */
  readonly credential: string;
  readonly network: Network;
  readonly resources: Resources;
  /** Null unless the instance is captured. A thaw and an adoption set it to null again. */
  readonly capturedFor: CapturedFor | null;
}

/** The checkpoint that a frozen instance was captured for. It may not be committed yet. */
interface CapturedFor {
  readonly checkpoint: CheckpointId;
  /**
   * What was sealed. `upper`: the upper layer itself, so the instance cannot go on without giving up the checkpoint.
   * `copy`: a copy of the upper layer. Memory and copy are complete, so the instance may be kept as a cache.
   */
  readonly sealed: 'upper' | 'copy';
}

/** The checkpoint that the frozen instance may be kept as a cache of; null when there is none. */
export function cachedCheckpoint({ capturedFor }: InstanceRecord): CheckpointId | null {
  return capturedFor?.sealed === 'copy' ? capturedFor.checkpoint : null;
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
  lower: z.array(layerReferenceSchema),
  /** Missing in records of earlier versions. */
  pages: z.array(layerReferenceSchema).default([]),
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
  /** The format of the file has two fields for `capturedFor`: this one for `upper`, the next one for `copy`. */
  sealedFor: z.custom<CheckpointId>(isString).nullable(),
  /** Missing in records of earlier versions. */
  warmFor: z.custom<CheckpointId>(isString).nullable().default(null),
});

type StoredRecord = z.infer<typeof recordSchema>;

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

  /** Like `write`, and resolves before the record is durable. The caller awaits `durable`. */
  replace(instance: Instance, record: InstanceRecord): Promise<ReplacedFile> {
    const path = this.paths(instance).record;
    return mapWriteErrors(path, () => replaceFile(path, textOf(record)));
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
  await mapWriteErrors(path, () => writeFileDurably(path, textOf(record)));
}

function textOf({ capturedFor, ...record }: InstanceRecord): string {
  const nameOf = (sealed: CapturedFor['sealed']) =>
    capturedFor?.sealed === sealed ? capturedFor.checkpoint : null;
  const names: Pick<StoredRecord, 'sealedFor' | 'warmFor'> = {
    sealedFor: nameOf('upper'),
    warmFor: nameOf('copy'),
  };
  return JSON.stringify({ ...record, ...names });
}

function readRecord(path: string): InstanceRecord | undefined {
  const text = readTextSync(path) ?? '';
  try {
    const { data } = recordSchema.safeParse(JSON.parse(text));
    return data === undefined ? undefined : fromStored(data);
  } catch {
    return undefined;
  }
}

function fromStored({ sealedFor, warmFor, ...record }: StoredRecord): InstanceRecord {
  if (sealedFor !== null) return { ...record, capturedFor: { checkpoint: sealedFor, sealed: 'upper' } };
  if (warmFor !== null) return { ...record, capturedFor: { checkpoint: warmFor, sealed: 'copy' } };
  return { ...record, capturedFor: null };
}
