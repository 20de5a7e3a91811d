/**
 * What each kind of operation is asked for and what it returns, as the database keeps them. The schemas
 * only require what the engine reads back: rows of earlier versions must stay readable.
 */
import {
  checkpointModeSchema,
  fallbackSchema,
  idSchema,
  lossSchema,
  type OperationKind,
  skippedSchema,
  sourceSchema,
} from '@torpor/protocol';
import { z } from 'zod';

const checkpointId = idSchema('ckpt');
const nothing = z.object({});

/** What a start may be asked for, by whichever kind. */
const startFields = { from: checkpointId.optional(), fallback: z.array(fallbackSchema).optional() };
const mode = checkpointModeSchema;

/** What a sandbox was started from, what it lost, and which better sources could not be used, if any. */
export const startResultSchema = z.object({
  source: sourceSchema,
  lost: z.array(lossSchema),
  skipped: z.array(skippedSchema).optional(),
});

const sealResultSchema = z.object({ checkpointId });

/** The sandbox's own row keeps everything else that a create is asked for. */
const create = { request: z.object(startFields), result: startResultSchema };
const pause = { request: z.object({ mode: mode.optional() }), result: sealResultSchema };
const resume = {
  request: z.object({ ...startFields, mode: mode.optional(), timeoutSeconds: z.number().optional() }),
  result: startResultSchema,
};
/** The children's rows keep what the fork asked for them. */
const fork = { request: z.looseObject({ count: z.number().optional() }), result: sealResultSchema };
const snapshot = {
  request: z.object({ name: z.string().optional(), expiresInSeconds: z.number().optional() }),
  result: sealResultSchema,
};
const rollback = { request: z.object(startFields), result: startResultSchema };
/** Without a checkpoint when the instance was thawed, or when the sandbox is lost. */
const recover = { request: nothing, result: z.object({ checkpointId: checkpointId.nullish() }) };
const kill = { request: nothing, result: nothing };

function stored<K extends OperationKind, Q extends z.ZodType, R extends z.ZodType>(
  kind: K,
  { request, result }: { readonly request: Q; readonly result: R },
) {
  return z.object({ kind: z.literal(kind), request, result: result.nullable() });
}

/** The columns of an operation that depend on its kind. */
export const operationBodySchema = z.discriminatedUnion('kind', [
  stored('create', create),
  stored('pause', pause),
  stored('resume', resume),
  stored('fork', fork),
  stored('snapshot', snapshot),
  stored('rollback', rollback),
  stored('recover', recover),
  stored('kill', kill),
]);
type OperationBody = z.infer<typeof operationBodySchema>;

type Requests = { [P in OperationKind]: Extract<OperationBody, { kind: P }>['request'] };
type Results = { [P in OperationKind]: NonNullable<Extract<OperationBody, { kind: P }>['result']> };
export type RequestOf<K extends OperationKind> = Requests[K];
export type ResultOf<K extends OperationKind> = Results[K];

/**
 * The kinds of operations whose result answers each kind of request. A pause is answered by a snapshot or a fork too: it
 * has sealed the sandbox and could not start it again.
 */
export const KINDS_THAT_SATISFY = {
  create: ['create'],
  pause: ['pause', 'recover', 'snapshot', 'fork'],
  resume: ['create', 'resume', 'rollback'],
  snapshot: ['snapshot'],
  fork: ['fork'],
  rollback: ['rollback'],
  kill: ['kill'],
} as const satisfies Partial<Record<OperationKind, readonly OperationKind[]>>;

export type RequestedKind = keyof typeof KINDS_THAT_SATISFY;
/** Kinds of requests that succeed without an operation when the sandbox is in the requested state already. */
export type IdempotentKind = 'pause' | 'resume' | 'kill';

export function isIdempotent(kind: RequestedKind): kind is IdempotentKind {
  return kind === 'pause' || kind === 'resume' || kind === 'kill';
}

/** The kinds of the operations that answer a request. */
export type AnswerKind<K extends RequestedKind> = (typeof KINDS_THAT_SATISFY)[K][number];
