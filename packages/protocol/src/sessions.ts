/** Sessions: conversations bound to sandboxes. */
import { z } from 'zod';
import { ERROR_CODES } from './errors.ts';
import { idSchema } from './ids.ts';
import { createRequestSchema, envSchema } from './requests.ts';
import { lossSchema } from './states.ts';
import { errorBodySchema, sandboxViewSchema, sourceSchema } from './views.ts';

/** The caller's own name for a session. It names the same session until that session is ended. */
export const sessionKeySchema = z.string().regex(/^[\x21-\x7e]{1,200}$/, 'visible ASCII without spaces');

export const programSchema = z
  .strictObject({
    command: z.string().min(1).max(32_768),
    /**
     * `turn` runs the command once for each turn, with the input on its stdin; the turn ends when it exits.
     * `service` keeps it running between turns; each turn is one line of JSON on its stdin (docs/sessions.md).
     */
    mode: z.enum(['turn', 'service']).default('turn'),
    cwd: z.string().min(1).max(4_096).optional(),
    env: envSchema.optional(),
  })
  .meta({ id: 'SessionProgram' });
export type Program = z.infer<typeof programSchema>;

/** Without a name: when the sandbox has to be replaced, its name could still be in use. */
const sessionSandboxSchema = createRequestSchema.refine(({ name }) => name === undefined, {
  message: 'the sandbox of a session has no name of its own',
  path: ['name'],
});

const sessionSpecFields = { program: programSchema, sandbox: sessionSandboxSchema.default({}) };
export const sessionSpecSchema = z.strictObject(sessionSpecFields).meta({ id: 'SessionSpec' });
export type SessionSpec = z.infer<typeof sessionSpecSchema>;

export const openSessionRequestSchema = z
  .strictObject({
    key: sessionKeySchema,
    ...sessionSpecFields,
    /** Whether the sandbox is woken or created at once; otherwise the first turn does it. */
    spawn: z.boolean().default(true),
  })
  .meta({ id: 'OpenSession' });
export type OpenSessionRequest = z.input<typeof openSessionRequestSchema>;

export const rebindRequestSchema = z
  .strictObject({
    /** An existing sandbox. Without it, a new sandbox is created from the last files of the session. */
    sandboxId: idSchema('sbx').optional(),
    /** Creates the new sandbox and all later ones on this runtime. Files stay with the runtime that wrote them. */
    runtime: z.string().min(1).max(64).optional(),
  })
  .refine(({ sandboxId, runtime }) => sandboxId === undefined || runtime === undefined, {
    message: 'a sandbox that exists has its runtime already',
    path: ['runtime'],
  })
  .meta({ id: 'RebindSession' });
export type RebindRequest = z.infer<typeof rebindRequestSchema>;

export const MAX_INPUT = 256 * 1024;
export const sendRequestSchema = z
  .strictObject({ input: z.string().min(1).max(MAX_INPUT) })
  .meta({ id: 'SendTurn' });
export type SendRequest = z.infer<typeof sendRequestSchema>;

/**
 * How a session got its present sandbox. `spawned` is a new sandbox, the first or one in place of a dead one; `rebound`: a
 * client asked for another sandbox; `healed`: the session reconciler unbound a dead sandbox, and the session has none.
 */
export const SESSION_CHANGE_KINDS = ['used', 'resumed', 'spawned', 'rebound', 'healed'] as const;
export const sessionChangeSchema = z
  .object({
    did: z.enum(SESSION_CHANGE_KINDS),
    at: z.number().int(),
    /** Why the previous sandbox was not used: an error code, or `first` or `request`. */
    why: z.string().nullable(),
    message: z.string().nullable(),
    /** The previous sandbox, if it was replaced. */
    formerSandboxId: idSchema('sbx').nullable(),
    /** The checkpoint that a new sandbox was started from; null: the template. */
    from: idSchema('ckpt').nullable(),
    lost: z.array(lossSchema),
    /** Changes of files after this time are lost; null when no files are lost. */
    lostSince: z.number().int().nullable(),
    /** Whether the program continues its conversation. */
    threadKept: z.boolean(),
  })
  .meta({ id: 'SessionChange' });
export type SessionChange = z.infer<typeof sessionChangeSchema>;

/** In the history `spawned` is only the first sandbox of a session, and `replaced` one in place of a dead one. */
export const SESSION_HISTORY_KINDS = [...SESSION_CHANGE_KINDS, 'replaced', 'failed'] as const;
export const sessionWakeSchema = z
  .object({
    /** Counts from 1 without gaps; the oldest entries are deleted first. */
    ordinal: z.number().int(),
    at: z.number().int(),
    did: z.enum(SESSION_HISTORY_KINDS),
    why: z.string().nullable(),
    message: z.string().nullable(),
    formerSandboxId: idSchema('sbx').nullable(),
    sandboxId: idSchema('sbx').nullable(),
    /** The checkpoint that the sandbox was started from; null when none was started. */
    source: sourceSchema.nullable(),
    lost: z.array(lossSchema),
    lostSince: z.number().int().nullable(),
    threadKept: z.boolean(),
    /** The platform's error. */
    error: z.object({ code: z.enum(ERROR_CODES), message: z.string() }).nullable(),
    /** How often the same failure occurred, and when last. */
    times: z.number().int(),
    lastAt: z.number().int(),
    /** When the session recovered from the failure; null while it lasts, and for entries that are not failures. */
    recoveredAt: z.number().int().nullable(),
  })
  .meta({ id: 'SessionWake' });
export type SessionWake = z.infer<typeof sessionWakeSchema>;

export const sessionViewSchema = z
  .object({
    id: idSchema('ses'),
    key: z.string(),
    ...sessionSpecFields,
    sandboxId: idSchema('sbx').nullable(),
    agentThreadId: z.string().nullable(),
    /** The last change of the binding. */
    change: sessionChangeSchema.nullable(),
    /** The present obstacle; null as soon as it is gone. */
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
    endedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Session' });
export type SessionView = z.infer<typeof sessionViewSchema>;

export const openSessionReplySchema = z
  .object({ session: sessionViewSchema, sandbox: sandboxViewSchema.nullable() })
  .meta({ id: 'SessionReply' });
export type OpenSessionReply = z.infer<typeof openSessionReplySchema>;

/**
 * `waiting` has not reached the sandbox, `delivering` may have, `answering` has. `unknown` ends a turn for which it
 * cannot be known whether the program received it; such a turn is never sent again automatically.
 */
export const TURN_STATES = ['waiting', 'delivering', 'answering', 'done', 'failed', 'unknown'] as const;
export const turnStateSchema = z.enum(TURN_STATES);
export type TurnState = z.infer<typeof turnStateSchema>;

export const turnViewSchema = z
  .object({
    id: idSchema('turn'),
    sessionId: idSchema('ses'),
    seq: z.number().int(),
    state: turnStateSchema,
    input: z.string(),
    sandboxId: idSchema('sbx').nullable(),
    exitCode: z.number().int().nullable(),
    /** Why the turn failed; while it waits, the present obstacle. */
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
    deliveredAt: z.number().int().nullable(),
    endedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Turn' });
export type TurnView = z.infer<typeof turnViewSchema>;

export const turnReplySchema = turnViewSchema
  .extend({ output: z.string().meta({ description: 'The output of the program on stdout so far.' }) })
  .meta({ id: 'TurnReply' });
export type TurnReply = z.infer<typeof turnReplySchema>;

/** The progress of session healing: replacing dead sandboxes of sessions. */
export const healingSchema = z
  .object({
    /** Sessions whose sandbox is dead. */
    due: z.number().int(),
    healed: z.number().int().meta({ description: 'Since this server started.' }),
    failed: z.number().int(),
    /** Replaced sandboxes that still have to be ended. */
    leftovers: z.number().int(),
    perRound: z.number().int(),
    everyMs: z.number().int(),
  })
  .meta({ id: 'SessionHealing' });
export type Healing = z.infer<typeof healingSchema>;
