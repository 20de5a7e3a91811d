/**
 * Builds: the states of a build job, their transitions, and the requests and responses of the builds API.
 *
 * The fields of this API use snake_case, because existing client programs rely on them; the rest of Torpor uses
 * camelCase.
 */
import { z } from 'zod';
import { idSchema } from './ids.ts';

export const BUILD_STATES = [
  'queued',
  'starting',
  'scaffold',
  'code',
  'deps',
  'checks',
  'ready',
  'failed',
  'scheduled',
] as const;
export const buildStateSchema = z.enum(BUILD_STATES);
export type BuildState = z.infer<typeof buildStateSchema>;

/** The allowed transitions. No other transition exists. */
export const NEXT_BUILD_STATES: Readonly<Record<BuildState, readonly BuildState[]>> = {
  queued: ['starting', 'scheduled', 'failed'],
  starting: ['scaffold', 'failed'],
  scaffold: ['code', 'failed'],
  code: ['deps', 'failed'],
  deps: ['checks', 'failed'],
  // Back to the beginning when the checks are repeated in a clean workspace.
  checks: ['ready', 'scaffold', 'failed'],
  ready: [],
  failed: [],
  scheduled: ['queued'],
};

export function mayFollow(from: BuildState, to: BuildState): boolean {
  return NEXT_BUILD_STATES[from].includes(to);
}

/** The states of a successful build, in order. */
const FORWARD = ['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'] as const;

/** Whether this transition completes the stage; a failure or a repetition does not. */
export function completesStage(from: BuildState, to: BuildState): boolean {
  return FORWARD.some((state, index) => state === from && FORWARD[index + 1] === to);
}

/** Whether the state is final. */
export function isBuildOver(state: BuildState): state is 'ready' | 'failed' {
  return NEXT_BUILD_STATES[state].length === 0;
}

/** The text for a state that people read. */
export const STAGE_LABELS: Readonly<Record<BuildState, string>> = {
  queued: 'Queued...',
  starting: 'Starting...',
  scaffold: 'Scaffolding workspace...',
  code: 'Writing code...',
  deps: 'Installing dependencies...',
  checks: 'Running checks...',
  ready: 'Build complete!',
  failed: 'Build failed',
  scheduled: 'Scheduled',
};

export const RUNNERS = ['starter', 'command', 'openai', 'none'] as const;
export const runnerNameSchema = z.enum(RUNNERS);
export type RunnerName = z.infer<typeof runnerNameSchema>;

export const projectIdSchema = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[A-Za-z0-9][A-Za-z0-9._:-]*$/, 'letters, digits, dot, dash, underscore, colon');
const goalSchema = z.string().min(1).max(20_000);
const portOptionSchema = z.number().int().min(1).max(65_535);

export const buildRequestSchema = z
  .strictObject({
    project_id: projectIdSchema,
    goal: goalSchema,
    runner: runnerNameSchema.optional(),
    port: portOptionSchema
      .optional()
      .meta({ description: 'The port of the application, when it cannot be found in its files.' }),
    previous_job_id: idSchema('job')
      .optional()
      .meta({ description: 'A ready build of the same project that this build continues.' }),
  })
  .meta({ id: 'BuildRequest' });
export type BuildRequest = z.infer<typeof buildRequestSchema>;

export const buildStartedSchema = z
  .object({
    job_id: idSchema('job'),
    status: z.enum(['queued', 'scheduled']),
    build_version: z.string().meta({
      description: 'The version of this build if no other build of the project becomes ready before it.',
    }),
  })
  .meta({ id: 'BuildStarted' });
export type BuildStarted = z.infer<typeof buildStartedSchema>;

/** The state of the sandbox of a ready build's preview. `expired`: it can never run again; only a rebuild helps. */
export const BUILD_SANDBOX_STATES = ['running', 'paused', 'expired', 'unknown'] as const;
export type BuildSandboxState = (typeof BUILD_SANDBOX_STATES)[number];

export const buildStatusSchema = z
  .object({
    job_id: idSchema('job'),
    project_id: z.string(),
    goal: z.string(),
    runner: runnerNameSchema,
    status: buildStateSchema,
    stage_label: z.string(),
    message: z.string(),
    sandbox_id: idSchema('sbx').nullable(),
    workspace_path: z.string().nullable(),
    preview_url: z.string().nullable(),
    build_version: z.string().nullable(),
    error_message: z.string().nullable(),
    debug_id: z.string().nullable(),
    sandbox_expires_at: z
      .string()
      .nullable()
      .meta({ description: 'Null while the preview sleeps: a sleeping preview does not expire.' }),
    sandbox_paused: z.boolean(),
    sandbox_state: z.enum(BUILD_SANDBOX_STATES).nullable().meta({
      description:
        'Whether the preview runs, is paused, or has expired, as the sandbox says now; null without a sandbox.',
    }),
    sandbox_reason: z
      .string()
      .nullable()
      .meta({ description: 'Why the sandbox has expired, or why its state is unknown.' }),
    expired: z
      .boolean()
      .meta({ description: 'The sandbox can never run again; a rebuild makes a new preview.' }),
    snapshot_url: z.string().nullable(),
    docs_ready: z.boolean(),
    files_expired: z.boolean().meta({ description: 'The files that the runner made were deleted.' }),
    logs_expired: z.boolean().meta({ description: 'The log of the build was deleted.' }),
    created_at: z.string(),
    updated_at: z.string(),
  })
  .meta({ id: 'Build' });
export type BuildStatus = z.infer<typeof buildStatusSchema>;

export const buildPageSchema = z
  .object({
    items: z.array(buildStatusSchema),
    nextCursor: z.string().nullable(),
  })
  .meta({ id: 'BuildPage' });

export const buildCancelledSchema = z
  .object({
    job_id: idSchema('job'),
    status: z.literal('cancelled'),
    message: z.string(),
  })
  .meta({ id: 'BuildCancelled' });
export type BuildCancelled = z.infer<typeof buildCancelledSchema>;

export const buildResumedSchema = z
  .object({ preview_url: z.string(), sandbox_id: idSchema('sbx') })
  .meta({ id: 'BuildResumed' });
export type BuildResumed = z.infer<typeof buildResumedSchema>;

/** The actual outcome of a snapshot; the rest of the reply is always the same (R41, R42). */
export const snapshotOutcomeSchema = z
  .object({
    outcome: z.enum(['paused', 'already_paused', 'failed']),
    checkpoint_id: idSchema('ckpt').optional(),
    error: z.string().optional(),
  })
  .meta({ id: 'SnapshotOutcome' });
export type SnapshotOutcome = z.infer<typeof snapshotOutcomeSchema>;

export const buildSnapshotSchema = z
  .object({
    job_id: idSchema('job'),
    paused: z.literal(true),
    snapshot: snapshotOutcomeSchema,
  })
  .meta({ id: 'BuildSnapshot' });
export type BuildSnapshot = z.infer<typeof buildSnapshotSchema>;

export const previewCheckSchema = z
  .object({
    embeddable: z.boolean(),
    preview_url: z.string(),
    reason: z.string().nullable(),
  })
  .meta({ id: 'PreviewCheck' });
export type PreviewCheck = z.infer<typeof previewCheckSchema>;

export const BUILD_EVENTS = [
  'build.stage.started',
  'build.stage.completed',
  'snapshot.updated',
  // The preview was not paused after `ready`; the message says why.
  'snapshot.failed',
  'documentation.updated',
] as const;

export const buildEventSchema = z
  .object({
    type: z.enum(BUILD_EVENTS),
    job_id: idSchema('job'),
    /** The state of the job at the event. A completed stage is still the state of its job. */
    status: buildStateSchema,
    stage: buildStateSchema,
    stage_label: z.string(),
    /** Text for people; for `ready` it is JSON with the preview's address, for clients that only read the stream (R13). */
    message: z.string(),
    timestamp: z.string(),
    debug_id: z.string().optional(),
  })
  .meta({ id: 'BuildEvent' });
export type BuildEvent = z.infer<typeof buildEventSchema>;

export const buildLogLineSchema = z
  .object({
    id: z.number().int(),
    ts: z.string(),
    source: z.string(),
    text: z.string(),
    phase: buildStateSchema,
  })
  .meta({ id: 'BuildLogLine' });
export type BuildLogLine = z.infer<typeof buildLogLineSchema>;

export const buildLogPageSchema = z
  .object({
    lines: z.array(buildLogLineSchema).meta({ description: 'Oldest first.' }),
    has_more: z.boolean(),
    oldest_id: z.number().int().nullable(),
  })
  .meta({ id: 'BuildLogPage' });
export type BuildLogPage = z.infer<typeof buildLogPageSchema>;

export const buildUsageSchema = z
  .object({
    jobs_used: z.number().int(),
    jobs_remaining: z.number().int(),
    iterations_used: z.number().int(),
    iterations_remaining: z.number().int(),
    daily_limit_resets_at: z.string(),
  })
  .meta({ id: 'BuildUsage' });
export type BuildUsage = z.infer<typeof buildUsageSchema>;

export const waitEstimateSchema = z
  .object({
    seconds: z.number().int(),
    low_seconds: z.number().int(),
    high_seconds: z.number().int(),
    confidence: z.enum(['medium', 'low']),
  })
  .meta({ id: 'WaitEstimate' });
export type WaitEstimate = z.infer<typeof waitEstimateSchema>;

export const jobViewSchema = z
  .object({
    job_id: idSchema('job'),
    status: buildStateSchema,
    position: z.number().int().meta({ description: 'Counted from 1; 0 when the build is not queued.' }),
    estimated_wait: waitEstimateSchema.nullable().optional(),
    usage: buildUsageSchema,
    message: z.string(),
  })
  .meta({ id: 'Job' });
export type JobView = z.infer<typeof jobViewSchema>;

export const previewViewedSchema = z
  .object({ gate_id: z.string().nullable(), status: z.enum(['gate_created', 'gate_already_created']) })
  .meta({ id: 'PreviewViewed' });
export type PreviewViewed = z.infer<typeof previewViewedSchema>;

export const iterationsGrantedSchema = z
  .object({ job_id: idSchema('job'), iterations_granted: z.number().int(), usage: buildUsageSchema })
  .meta({ id: 'IterationsGranted' });
export type IterationsGranted = z.infer<typeof iterationsGrantedSchema>;

const docsSection = z.string().nullable();

/** Sections in Markdown. A section is null when neither the application nor its build has anything for it. */
export const buildDocsSchema = z
  .object({
    overview: docsSection,
    features: docsSection,
    getting_started: docsSection,
    faq: docsSection,
    changelog: docsSection,
  })
  .meta({ id: 'BuildDocs' });
export type BuildDocs = z.infer<typeof buildDocsSchema>;

export const buildFileSchema = z
  .object({ path: z.string(), size: z.number().int(), executable: z.boolean() })
  .meta({ id: 'BuildFile' });
export type BuildFile = z.infer<typeof buildFileSchema>;

/** The files that the runner made, also of a failed build. */
export const buildFilesSchema = z.object({ items: z.array(buildFileSchema) }).meta({ id: 'BuildFiles' });

export const RESUME_ERRORS = ['sandbox_expired', 'sandbox_unreachable'] as const;
export const BUILD_ERROR_TYPES = [...RESUME_ERRORS, 'files_expired', 'logs_expired'] as const;
export type BuildErrorType = (typeof BUILD_ERROR_TYPES)[number];

/** The error for a client to act on. A failed resume also has the platform's code and message. */
const buildErrorDetailSchema = z
  .object({
    message: z.string(),
    error_type: z.enum(BUILD_ERROR_TYPES),
    retryable: z.boolean().optional().meta({ description: 'Whether the same request may succeed later.' }),
    code: z.string().optional().meta({ description: "The platform's own code for the failure." }),
    platform_message: z.string().optional().meta({ description: "The platform's own message." }),
    checkpoint_id: z.string().optional().meta({ description: 'The unusable checkpoint.' }),
  })
  .meta({ id: 'BuildErrorDetail' });

/** Every unsuccessful response of the builds API. */
export const buildErrorReplySchema = z
  .object({
    detail: z.union([z.string(), buildErrorDetailSchema]),
    debug_id: z.string().meta({ description: "Identifies the failure in the server's log." }),
  })
  .meta({ id: 'BuildErrorReply' });
