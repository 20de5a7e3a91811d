/** Sandboxes, checkpoints and operations as callers see them. */
import { z } from 'zod';
import { ERROR_CODES, type ErrorBody } from './errors.ts';
import { idSchema } from './ids.ts';
import { networkSchema, onIdleSchema, serviceSchema } from './requests.ts';
import {
  checkpointHealthSchema,
  checkpointModeSchema,
  checkpointPartSchema,
  checkpointStateSchema,
  fallbackSchema,
  lossSchema,
  operationKindSchema,
  operationOutcomeSchema,
  sandboxStateSchema,
  skippedSchema,
  sourceKindSchema,
} from './states.ts';

export const errorBodySchema = z
  .object({
    code: z.enum(ERROR_CODES),
    message: z.string(),
    retryable: z.boolean(),
    hint: z.string(),
    retryAfterMs: z.number().optional(),
    sandboxId: z.string().optional(),
    operationId: z.string().optional(),
    checkpointId: z.string().optional(),
    requestId: z.string().optional(),
    details: z.record(z.string(), z.unknown()).optional(),
  })
  .meta({ id: 'Error' });

const anyErrorBodySchema = errorBodySchema.extend({ code: z.string() });

/** Whether this is an error as answers and rows have it, also of a newer version: `TorporError.fromBody` knows what to do then. */
export function isErrorBody(value: unknown): value is ErrorBody {
  return anyErrorBodySchema.safeParse(value).success;
}

/** What the runtime last reported about a sandbox. `unknown` never means absent. */
export const evidenceSchema = z.enum(['running', 'frozen', 'gone', 'unknown', 'ledger']);
export type Evidence = z.infer<typeof evidenceSchema>;

/** A known fault of one part of a checkpoint. */
export const checkpointFaultSchema = z
  .object({
    part: checkpointPartSchema,
    found: z.enum(['inspection', 'contents', 'start']).meta({
      description:
        'inspection: something is missing or has another size; the next inspection clears the fault when it is back. ' +
        'contents: the bytes differ; only a new verification clears the fault. ' +
        'start: the memory did not come back in time, which a start from it clears. With the code `timeout` this is a ' +
        'suspicion and the memory is tried again.',
    }),
    code: z.enum(ERROR_CODES),
    detail: z.string(),
    foundAt: z.number().int(),
    /** How many starts exceeded their time limit; only for `start`. */
    times: z.number().int().optional(),
  })
  .meta({ id: 'CheckpointFault' });
export type CheckpointFault = z.infer<typeof checkpointFaultSchema>;

/** The unusable checkpoint of a lost sandbox. */
export const lostCheckpointSchema = z.object({
  checkpointId: idSchema('ckpt'),
  location: z.string().nullable(),
  code: z.enum(ERROR_CODES),
});
export type LostCheckpoint = z.infer<typeof lostCheckpointSchema>;

/** The health of the checkpoint that a sandbox would be resumed from. */
const sandboxCheckpointHealthSchema = z.object({
  health: z.enum(['ok', 'damaged', 'missing', 'unknown']).meta({
    description:
      'missing: the files of the checkpoint are missing. damaged: a part of it is damaged, see `parts`. ' +
      'unknown: the checkpoint could not be read, which does not mean that it is damaged.',
  }),
  reason: z.string().nullable(),
  /** When the contents were last verified completely. */
  verifiedAt: z.number().int().nullable(),
  /** The parts that are damaged or missing. */
  parts: z.array(checkpointPartSchema),
});

/** A declared service of a sandbox, with the job that tracks it. */
export const declaredServiceSchema = serviceSchema
  .extend({ jobId: idSchema('job') })
  .meta({ id: 'DeclaredService' });
export type DeclaredService = z.infer<typeof declaredServiceSchema>;

/** Without the bounds of a request: they may have changed since the sandbox was created. */
const resourcesViewSchema = z.object({
  memoryMb: z.number().optional(),
  cpus: z.number().optional(),
  processes: z.number().optional(),
  diskMb: z.number().optional(),
});

export const sandboxViewSchema = z
  .object({
    id: idSchema('sbx'),
    name: z.string().nullable(),
    state: sandboxStateSchema,
    observedAt: z.number().int(),
    evidence: evidenceSchema,
    generation: z.number().int(),
    runtime: z.string(),
    template: z.string().nullable(),
    checkpointId: idSchema('ckpt').nullable(),
    /** Null when the sandbox has no checkpoint of its own. */
    checkpointHealth: sandboxCheckpointHealthSchema.nullable(),
    baseId: idSchema('ckpt').nullable(),
    createdAt: z.number().int(),
    startedAt: z.number().int().nullable(),
    endsAt: z.number().int().nullable(),
    deletePausedAfterSeconds: z
      .number()
      .nullable()
      .meta({
        description:
          "How long the sandbox is kept while paused and unused, by its own policy, its organisation's or the server's. " +
          'Null: for ever.',
      }),
    deletesAt: z.number().int().nullable().meta({
      description:
        'When a paused sandbox is deleted if it is not used before. Null while it runs, or when it is kept for ever.',
    }),
    timeoutSeconds: z.number().int().nullable(),
    onTimeout: z.enum(['pause', 'kill']),
    pauseMode: checkpointModeSchema.nullable(),
    idleSeconds: z.number().int(),
    onIdle: onIdleSchema,
    autoResume: z.boolean(),
    checkpointEverySeconds: z.number().nullable().optional().meta({
      description: 'How often the running sandbox is sealed in place. Older servers do not send this field.',
    }),
    node: z.string().optional().meta({
      description:
        'The node that runs the sandbox, or has run it last: `local` on a server that is alone. Older servers do not send this field.',
    }),
    fallback: z.array(fallbackSchema),
    preview: z.enum(['public', 'private']),
    requestHost: z.string().optional().meta({
      description: 'The `Host` that programs get in requests to previews; absent: the host of the preview.',
    }),
    metadata: z.record(z.string(), z.string()),
    services: z.array(declaredServiceSchema),
    network: networkSchema,
    resources: resourcesViewSchema,
    lost: z.array(lossSchema),
    reason: z.string().nullable(),
    /** Only for a sandbox that is lost because no checkpoint could be used. */
    lostCheckpoint: lostCheckpointSchema.nullable(),
    warm: z
      .boolean()
      .nullable()
      .meta({
        description:
          'Whether a paused sandbox is still in memory and wakes within milliseconds. Its checkpoint is sealed either way. ' +
          'Null when it is not paused, or its runtime keeps no paused sandbox in memory.',
      }),
    warmReason: z.string().nullable().meta({
      description: 'Why a paused sandbox is not in memory; null when it is, or when the reason is not known.',
    }),
    /** The operation that is under way. */
    operationId: idSchema('op').nullable(),
    operationKind: operationKindSchema.nullable(),
    /** The preview address of each declared port; added by the server, which knows its own address. */
    urls: z.record(z.string(), z.string()).optional(),
  })
  .meta({ id: 'Sandbox' });
export type SandboxView = z.infer<typeof sandboxViewSchema>;

export const checkpointViewSchema = z
  .object({
    id: idSchema('ckpt'),
    sandboxId: idSchema('sbx').nullable(),
    parentId: idSchema('ckpt').nullable(),
    names: z.array(z.string()),
    state: checkpointStateSchema,
    health: checkpointHealthSchema,
    /** Why the health is not ok: `checkpoint_missing`, `checkpoint_corrupt`, `checkpoint_unreadable`, … */
    healthCode: z.string().nullable(),
    healthDetail: z.string().nullable(),
    faults: z.array(checkpointFaultSchema),
    verifiedAt: z.number().int().nullable(),
    runtime: z.string(),
    parts: z.object({ files: z.boolean(), memory: z.boolean() }),
    external: z.boolean(),
    replayable: z.boolean(),
    recovered: z.boolean(),
    location: z.string().nullable(),
    bytes: z.number().int().nullable(),
    createdAt: z.number().int(),
    sealedAt: z.number().int().nullable(),
    expiresAt: z.number().int().nullable(),
    replicated: z.boolean().optional().meta({
      description:
        'Whether the checkpoint is complete in the store outside this machine. Older servers do not send this field.',
    }),
    replicatedAt: z.number().int().nullable().optional(),
  })
  .meta({ id: 'Checkpoint' });
export type CheckpointView = z.infer<typeof checkpointViewSchema>;

/** The answer of a verification. */
export const verifiedCheckpointViewSchema = checkpointViewSchema
  .extend({
    unusableMemory: z
      .string()
      .nullable()
      .optional()
      .meta({
        description:
          'Why memory that is not damaged cannot be restored on this machine, for example because the runsc that wrote it is ' +
          'missing: a start uses the files. Null when it can be restored or there is none. Older servers do not send this field.',
      }),
  })
  .meta({ id: 'VerifiedCheckpoint' });
export type VerifiedCheckpointView = z.infer<typeof verifiedCheckpointViewSchema>;

export const operationViewSchema = z
  .object({
    id: idSchema('op'),
    sandboxId: idSchema('sbx'),
    kind: operationKindSchema,
    phase: z.string().nullable(),
    phases: z.array(z.object({ phase: z.string(), at: z.number().int(), detail: z.string().optional() })),
    startedAt: z.number().int(),
    deadlineAt: z.number().int(),
    endedAt: z.number().int().nullable(),
    outcome: operationOutcomeSchema.nullable(),
    error: errorBodySchema.nullable(),
  })
  .meta({ id: 'Operation' });
export type OperationView = z.infer<typeof operationViewSchema>;

export const sourceSchema = z.object({ checkpointId: idSchema('ckpt').nullable(), kind: sourceKindSchema });
export type Source = z.infer<typeof sourceSchema>;

export const pauseReplySchema = z
  .object({
    sandbox: sandboxViewSchema,
    checkpoint: checkpointViewSchema,
    operation: operationViewSchema.nullable(),
    warm: z
      .boolean()
      .meta({ description: 'Whether the sandbox is still in memory; the same as in `sandbox`.' }),
    warmReason: z.string().nullable().meta({ description: 'Why it is not in memory, where that is known.' }),
    replicated: z.boolean().optional().meta({
      description:
        'Whether the checkpoint is in the store outside this machine. Older servers do not send this field.',
    }),
    replicatedReason: z
      .string()
      .nullable()
      .optional()
      .meta({ description: 'Why a pause with `durability` "replicated" was answered without it.' }),
  })
  .meta({ id: 'PauseReply' });

export const resumeReplySchema = z
  .object({
    sandbox: sandboxViewSchema,
    source: sourceSchema,
    lost: z.array(lossSchema),
    /** Better sources that could not be used. Older servers do not send this field. */
    skipped: z.array(skippedSchema).optional(),
  })
  .meta({ id: 'ResumeReply' });

/** A page of a list. `nextCursor` is opaque; null means the last page. */
export function pageSchema<T extends z.ZodType>(item: T) {
  return z.object({ items: z.array(item), nextCursor: z.string().nullable() });
}
