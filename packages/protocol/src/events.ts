/**
 * The events of the ledger: the event types, and the data of each.
 * Every event also has the state, generation and checkpoint of the sandbox *after* it.
 */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { jobLossSchema, trackedJobKindSchema } from './jobs.ts';
import { networkSchema, retentionSchema } from './requests.ts';
import {
  checkpointHealthSchema,
  checkpointModeSchema,
  checkpointPartSchema,
  lossSchema,
  operationKindSchema,
  sandboxStateSchema,
  skippedSchema,
  sourceKindSchema,
} from './states.ts';

const errorData = z.object({ code: z.string(), message: z.string() });

/** A start that failed because of a checkpoint has the checkpoint's id and location. */
const startErrorData = errorData.extend({
  checkpointId: idSchema('ckpt').optional(),
  location: z.string().nullable().optional(),
});

/** Why a sandbox pauses or is killed. */
export const reasonSchema = z.enum([
  'request',
  'timeout',
  'idle',
  'evacuation',
  'rollback',
  'snapshot',
  'reconcile',
  'expired',
]);
export type Reason = z.infer<typeof reasonSchema>;

const sealedData = z.object({
  reason: reasonSchema.optional(),
  parentId: idSchema('ckpt').nullable(),
  location: z.string(),
  bytes: z.number(),
  parts: z.object({ files: z.boolean(), memory: z.boolean() }),
  durationMs: z.number().optional(),
});

const startedData = z.object({
  source: z.object({ checkpointId: idSchema('ckpt').nullable(), kind: sourceKindSchema }),
  lost: z.array(lossSchema),
  /** Better sources that were skipped; absent when the best source was used. */
  skipped: z.array(skippedSchema).optional(),
  endsAt: z.number().nullable(),
  durationMs: z.number().optional(),
});

const repairData = z.object({ found: z.string(), previousState: sandboxStateSchema });

const jobData = z.object({
  jobId: idSchema('job'),
  kind: trackedJobKindSchema,
  name: z.string().nullable(),
});

/** Every event type with the schema of its data. The keys are the closed set. */
export const EVENT_DATA = {
  'sandbox.created': z.object({
    template: z.string().nullable(),
    runtime: z.string(),
    /** The names of the secrets that it may use; absent for none. */
    secrets: z.array(z.string()).optional(),
  }),
  'sandbox.started': startedData,
  'sandbox.failed': z.object({ error: startErrorData }),
  'sandbox.pausing': z.object({ reason: reasonSchema, mode: checkpointModeSchema }),
  /** `skipped` contains the memory when it could not be captured and the policy allowed a checkpoint of files only. */
  'sandbox.paused': sealedData.extend({
    lost: z.array(lossSchema),
    skipped: z.array(skippedSchema).optional(),
  }),
  'sandbox.pause_failed': z.object({ error: errorData }),
  'sandbox.resuming': z.object({ reason: reasonSchema }),
  'sandbox.resumed': startedData,
  'sandbox.resume_failed': z.object({ error: startErrorData }),
  'sandbox.recovered': sealedData.extend({ ...repairData.shape, lost: z.array(lossSchema) }),
  /** The checkpoint whose files were proved unusable, its location and code; absent when there never was a checkpoint. */
  'sandbox.lost': z.object({
    reason: z.string(),
    previousState: sandboxStateSchema,
    checkpointId: idSchema('ckpt').optional(),
    location: z.string().nullable().optional(),
    code: z.string().optional(),
  }),
  'sandbox.killing': z.object({ reason: reasonSchema, superseded: operationKindSchema.nullable() }),
  'sandbox.killed': z.object({}),
  'lifetime.set': z.object({ endsAt: z.number().nullable(), timeoutSeconds: z.number().nullable() }),
  'retention.set': z.object({ deletePausedAfterSeconds: retentionSchema }),
  /** The sandbox will be deleted at `deletesAt`, unless it is used before. */
  'sandbox.expiring': z.object({ deletesAt: z.number(), unusedSince: z.number().nullable() }),
  /** The policy under which the deletion was announced has changed. */
  'sandbox.expiry_withdrawn': z.object({ deletesAt: z.number() }),
  'network.set': z.object({ network: networkSchema }),
  /** Names only: the commands and environments are in the sandbox's own view. */
  'services.set': z.object({ services: z.array(z.string()) }),
  /** A connection or DNS lookup that the network policy refused; `count` is how many of the same kind. */
  'network.refused': z.object({
    via: z.enum(['tcp', 'udp', 'dns']),
    destination: z.string(),
    name: z.string().nullable(),
    reason: z.string(),
    rule: z.string().nullable(),
    message: z.string(),
    count: z.number(),
  }),
  'operation.phase': z.object({
    kind: operationKindSchema,
    phase: z.string(),
    detail: z.string().optional(),
  }),
  'operation.taken_over': z.object({ kind: operationKindSchema, found: z.string() }),
  'checkpoint.sealed': sealedData.extend({ name: z.string().nullable() }),
  'checkpoint.named': z.object({ checkpointId: idSchema('ckpt'), name: z.string() }),
  'checkpoint.health': z.object({
    checkpointId: idSchema('ckpt'),
    health: checkpointHealthSchema,
    code: z.string().nullable(),
    detail: z.string().nullable(),
    /** The parts that are known to be damaged or missing. */
    parts: z.array(checkpointPartSchema).optional(),
    location: z.string().nullable().optional(),
  }),
  /** The checkpoint is complete in the store outside this machine; `location` is its last object. */
  'checkpoint.replicated': z.object({
    checkpointId: idSchema('ckpt'),
    location: z.string(),
    bytes: z.number(),
    durationMs: z.number(),
  }),
  /** Once for each new cause; the server tries again. */
  'checkpoint.replication_failed': errorData.extend({
    checkpointId: idSchema('ckpt'),
    store: z.string(),
    fault: z.string().optional(),
    bucket: z.string().optional(),
    key: z.string().optional(),
  }),
  /** Parts that this machine had lost were brought back from the store. */
  'checkpoint.fetched': z.object({
    checkpointId: idSchema('ckpt'),
    store: z.string(),
    parts: z.array(z.string()),
    durationMs: z.number(),
  }),
  /** The store has the checkpoint, and the disk of the node had no room for it. The next start fetches it. */
  'checkpoint.evicted': z.object({
    checkpointId: idSchema('ckpt'),
    node: z.string(),
    freedBytes: z.number(),
  }),
  /** A node that was given up came back with a run that others had gone on without. The state of the sandbox does not change. */
  'checkpoint.recovered': z.object({
    checkpointId: idSchema('ckpt'),
    node: z.string(),
    generation: z.number(),
    location: z.string(),
    bytes: z.number(),
    parts: z.object({ files: z.boolean(), memory: z.boolean() }),
  }),
  'checkpoint.expiring': z.object({ checkpointId: idSchema('ckpt'), expiresAt: z.number() }),
  'checkpoint.deleted': z.object({
    checkpointId: idSchema('ckpt'),
    why: z.enum(['request', 'expired', 'unreferenced', 'unfinished', 'consumed']),
  }),
  'job.created': jobData.extend({ forkedFrom: idSchema('job').nullable() }),
  'job.suspended': jobData,
  'job.resumed': jobData,
  'job.restarted': jobData.extend({ restarts: z.number().int() }),
  'job.completed': jobData.extend({ exitCode: z.number().int(), signal: z.string().nullable() }),
  'job.lost': jobData.extend({ reason: jobLossSchema, message: z.string() }),
  'reconcile.repaired': repairData.extend({ did: z.string() }),
} as const;

export type EventType = keyof typeof EVENT_DATA;
export type EventData<T extends EventType> = z.infer<(typeof EVENT_DATA)[T]>;

export const EVENT_TYPES = Object.keys(EVENT_DATA) as [EventType, ...EventType[]];

export const eventViewSchema = z
  .object({
    id: idSchema('evt'),
    sandboxId: idSchema('sbx'),
    seq: z.number().int(),
    position: z.number().int(),
    at: z.number().int(),
    type: z.enum(EVENT_TYPES),
    previousState: sandboxStateSchema.nullable(),
    state: sandboxStateSchema,
    generation: z.number().int(),
    checkpointId: idSchema('ckpt').nullable(),
    operationId: idSchema('op').nullable(),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: 'Event' });
export type EventView = z.infer<typeof eventViewSchema>;
