/** What a gVisor checkpoint needs to be started again, and what its content directory has. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Captured, ContentPart, LayerReference, SealedCheckpoint } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { layerReferenceSchema } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** `base` (the name is historical): a view of this machine's system directories. `own`: everything is in layers. */
export type RootKind = 'base' | 'own';

const needsSchema = z.object({
  version: z.literal(1),
  /** The template that this is the first checkpoint of; null for a checkpoint of a sandbox. */
  template: z.string().nullable(),
  root: z.enum(['base', 'own'] satisfies RootKind[]),
  /** Newest first. */
  layers: z.array(layerReferenceSchema).min(1).readonly(),
  /** The page layers of the memory, the checkpoint's own first. Empty without memory, and in checkpoints of earlier versions. */
  pages: z.array(layerReferenceSchema).readonly().default([]),
  /** For a template with an own root: the digest of what its bottom layer was made from. */
  rootDigest: z.string().nullable().default(null),
  /** The fields below are for the memory image: it can be restored only where all of them are the same. */
  runsc: z.string(),
  processor: z.string(),
  tools: z.string(),
  /** The fingerprint of the system directories, for `base`. */
  system: z.string().nullable(),
});

export type GvisorNeeds = Readonly<z.infer<typeof needsSchema>>;

export function needsOf(checkpoint: Omit<SealedCheckpoint, 'path'>): GvisorNeeds {
  const needs = needsSchema.safeParse(checkpoint.needs);
  if (needs.success) return needs.data;
  throw new TorporError('checkpoint_corrupt', `${checkpoint.id} does not say what it needs.`, {
    checkpointId: checkpoint.id,
    cause: needs.error,
  });
}

/** Names at the top of the content directory. */
export const MEMORY = 'memory';
const SECRETS = 'secrets.json';
/** A list of layers that earlier versions left there for people. */
const LAYERS_NOTE = 'layers.json';

/** A start from files reads nothing of the content directory: files are in layers. */
export const MEMORY_ENTRIES: readonly string[] = [MEMORY, SECRETS, LAYERS_NOTE];

/** The parts of a checkpoint with memory, besides the layers of its files. */
function memoryParts(pages: readonly LayerReference[]): readonly ContentPart[] {
  return [
    { name: 'memory', encoding: 'packed', top: [MEMORY], layers: pages },
    { name: 'secrets', encoding: 'whole', top: [SECRETS], layers: [] },
  ];
}

function layersPart(layers: readonly LayerReference[]): ContentPart {
  return { name: 'layers', encoding: 'whole', top: [], layers };
}

/** What was captured of an instance: the checkpoint's parts, needs and contents. `pages` is null without memory. */
export function describeCapture(
  { processor }: RuntimeContext,
  { root, tools, system, runsc }: Pick<InstanceRecord, 'root' | 'tools' | 'system' | 'runsc'>,
  layers: readonly LayerReference[],
  checkpoint: CheckpointId,
  pages: readonly LayerReference[] | null,
  template: { readonly name: string; readonly rootDigest: string | null } | null = null,
): Captured {
  const needs: GvisorNeeds = {
    version: 1,
    template: template?.name ?? null,
    rootDigest: template?.rootDigest ?? null,
    root,
    layers,
    pages: pages ?? [],
    runsc,
    processor,
    tools,
    system,
  };
  // Not the owners of page layers: an old checkpoint, with its files, is not kept for its pages. Their layers stay by the claim.
  const owners = new Set(layers.map(({ owner }) => owner));
  owners.delete(checkpoint);
  return {
    parts: { files: true, memory: pages !== null },
    needs: { ...needs },
    contents: [...(pages === null ? [] : memoryParts(pages)), layersPart(layers)],
    dependsOn: [...owners],
    external: null,
  };
}

const secretsSchema = z.object({
  /** The agent accepts orders from a server that presents it. */
  credential: z.string(),
});

/** Secrets that the processes in a memory image know, and that the server needs to talk to them. */
export type ImageSecrets = Readonly<z.infer<typeof secretsSchema>>;

export async function writeSecrets(content: string, secrets: ImageSecrets): Promise<void> {
  const path = join(content, SECRETS);
  await mapWriteErrors(path, () => writeFile(path, JSON.stringify(secrets), { mode: 0o600 }));
}

export async function readSecrets(checkpoint: SealedCheckpoint): Promise<ImageSecrets> {
  try {
    return secretsSchema.parse(JSON.parse(await readFile(join(checkpoint.path ?? '', SECRETS), 'utf8')));
  } catch (cause) {
    const code = isMissing(cause)
      ? 'checkpoint_missing'
      : cause instanceof SyntaxError || cause instanceof z.ZodError
        ? 'checkpoint_corrupt'
        : 'checkpoint_unreadable';
    throw new TorporError(code, `The secrets of ${checkpoint.id} cannot be read.`, {
      checkpointId: checkpoint.id,
      cause,
    });
  }
}
