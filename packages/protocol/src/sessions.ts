/** Conversations bound to sandboxes: what callers may ask of them, and what they see. */
import { z } from 'zod';
import { ERROR_CODES } from './errors.ts';
import { idSchema } from './ids.ts';
import { createRequestSchema, envSchema } from './requests.ts';
import { lossSchema } from './states.ts';
import { errorBodySchema, sandboxViewSchema, sourceSchema } from './views.ts';

/** What a caller calls a thread by; it means the same session until that is ended. */
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

/** A name could be taken when the sandbox has to be replaced. */
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
    /** Whether its sandbox is woken or made at once; without, the first turn does it. */
    spawn: z.boolean().default(true),
  })
  .meta({ id: 'OpenSession' });
export type OpenSessionRequest = z.input<typeof openSessionRequestSchema>;

export const rebindRequestSchema = z
  .strictObject({
    /** A sandbox that exists. Without it, a new one is made from the last files of the session. */
    sandboxId: idSchema('sbx').optional(),
    /** Makes the new sandbox on this runtime, and all later ones too. Files stay with the runtime that wrote them. */
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

/** How a session came to the sandbox it has. */
export const SESSION_DEEDS = ['used', 'resumed', 'spawned', 'rebound', 'healed'] as const;
export const sessionChangeSchema = z
  .object({
    did: z.enum(SESSION_DEEDS),
    at: z.number().int(),
    /** Why it was not simply used: a code of the closed set of errors, or `first` or `request`. */
    why: z.string().nullable(),
    message: z.string().nullable(),
    /** The sandbox it had before, when that was replaced. */
    formerSandboxId: idSchema('sbx').nullable(),
    /** What a new one was started from; null is the template. */
    from: idSchema('ckpt').nullable(),
    lost: z.array(lossSchema),
    /** What was written to the files after this time is lost; null when no files are lost. */
    lostSince: z.number().int().nullable(),
    /** Whether the program goes on with the thread it had. */
    threadKept: z.boolean(),
  })
  .meta({ id: 'SessionChange' });
export type SessionChange = z.infer<typeof sessionChangeSchema>;

/** `spawned` is the first sandbox of a session, `replaced` one in place of a dead one. */
export const SESSION_WAKES = [...SESSION_DEEDS, 'replaced', 'failed'] as const;
export const sessionWakeSchema = z
  .object({
    /** Counts from 1 and has no gaps; the oldest are forgotten first. */
    ordinal: z.number().int(),
    at: z.number().int(),
    did: z.enum(SESSION_WAKES),
    why: z.string().nullable(),
    message: z.string().nullable(),
    formerSandboxId: idSchema('sbx').nullable(),
    sandboxId: idSchema('sbx').nullable(),
    /** What the sandbox was started from; null when none was started. */
    source: sourceSchema.nullable(),
    lost: z.array(lossSchema),
    lostSince: z.number().int().nullable(),
    threadKept: z.boolean(),
    /** How it failed, in the words of the platform. */
    error: z.object({ code: z.enum(ERROR_CODES), message: z.string() }).nullable(),
    /** How often it failed for the same cause, and when last. */
    times: z.number().int(),
    lastAt: z.number().int(),
    /** When the session recovered from the failure; null while it lasts, and for everything else. */
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
    /** The last thing that happened to its binding. */
    change: sessionChangeSchema.nullable(),
    /** What is in its way at the moment; gone as soon as it is not. */
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
 * `waiting` has not reached the sandbox, `delivering` may have, `answering` has. `unknown` is the end of a turn of
 * which nobody can say whether the program got it; it is never sent again by itself.
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
    /** How it failed; while it waits, what is in its way. */
    error: errorBodySchema.nullable(),
    createdAt: z.number().int(),
    deliveredAt: z.number().int().nullable(),
    endedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Turn' });
export type TurnView = z.infer<typeof turnViewSchema>;

export const turnReplySchema = turnViewSchema
  .extend({ output: z.string().meta({ description: 'What the program has said so far on stdout.' }) })
  .meta({ id: 'TurnReply' });
export type TurnReply = z.infer<typeof turnReplySchema>;

/** What the healing of sessions has before it and behind it. */
export const healingSchema = z
  .object({
    /** Sessions bound to a sandbox that is dead. */
    due: z.number().int(),
    healed: z.number().int().meta({ description: 'Since this server started.' }),
    failed: z.number().int(),
    /** Sandboxes that were replaced and are still to be ended. */
    leftovers: z.number().int(),
    perRound: z.number().int(),
    everyMs: z.number().int(),
  })
  .meta({ id: 'SessionHealing' });
export type Healing = z.infer<typeof healingSchema>;
