/**
 * Builds: the states of a job, which may follow which, and what its faces say.
 *
 * The words on this wire have underscores, because programs outside rely on them; everything else of Torpor
 * writes names as one word.
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

/** Legal changes of state. There is no other way from one to the next. */
export const NEXT_BUILD_STATES: Readonly<Record<BuildState, readonly BuildState[]>> = {
  queued: ['starting', 'scheduled', 'failed'],
  starting: ['scaffold', 'failed'],
  scaffold: ['code', 'failed'],
  code: ['deps', 'failed'],
  deps: ['checks', 'failed'],
  // Back to the beginning when checks are to be tried again from a clean workspace.
  checks: ['ready', 'scaffold', 'failed'],
  ready: [],
  failed: [],
  scheduled: ['queued'],
};

export function mayFollow(from: BuildState, to: BuildState): boolean {
  return NEXT_BUILD_STATES[from].includes(to);
}

/** The way of a build that goes well. */
const FORWARD = ['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'] as const;

/** Whether this change means that the stage did what it is there for; a failure or a second try does not. */
export function completesStage(from: BuildState, to: BuildState): boolean {
  return FORWARD.some((state, index) => state === from && FORWARD[index + 1] === to);
}

/** Whether nothing can happen to the job any more. */
export function isBuildOver(state: BuildState): state is 'ready' | 'failed' {
  return NEXT_BUILD_STATES[state].length === 0;
}

/** What people read for a state. */
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
      .meta({ description: 'Where the application listens, when that cannot be told from its files.' }),
    previous_job_id: idSchema('job')
      .optional()
      .meta({ description: 'A ready build of the same project that this one goes on from.' }),
  })
  .meta({ id: 'BuildRequest' });
export type BuildRequest = z.infer<typeof buildRequestSchema>;

export const buildStartedSchema = z
  .object({
    job_id: idSchema('job'),
    status: z.enum(['queued', 'scheduled']),
    build_version: z
      .string()
      .meta({ description: 'What it will be called if no other build of the project is ready before it.' }),
  })
  .meta({ id: 'BuildStarted' });
export type BuildStarted = z.infer<typeof buildStartedSchema>;

/** Of the sandbox behind the preview of a ready build. `expired`: it can never run again, only a rebuild helps. */
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
      .meta({ description: 'Null while it sleeps: what sleeps does not run out.' }),
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
    files_expired: z.boolean().meta({ description: 'What the runner made is not kept any more.' }),
    logs_expired: z.boolean().meta({ description: 'What the build has said is not kept any more.' }),
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

/** What really came of a snapshot, beside the reply that is always the same (R41, R42). */
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
    /** What the job is in when the event happens; a stage that is completed is still that. */
    status: buildStateSchema,
    stage: buildStateSchema,
    stage_label: z.string(),
    /** For people; of `ready` it is JSON with the preview's address, for those who only read the stream (R13). */
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
    position: z.number().int().meta({ description: 'Counted from 1; 0 when it does not wait in line.' }),
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

/** Markdown, each section null when neither the application nor its build says anything of the kind. */
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

/** What the runner made, also of a build that failed. */
export const buildFilesSchema = z.object({ items: z.array(buildFileSchema) }).meta({ id: 'BuildFiles' });

export const RESUME_ERRORS = ['sandbox_expired', 'sandbox_unreachable'] as const;
export const BUILD_ERROR_TYPES = [...RESUME_ERRORS, 'files_expired', 'logs_expired'] as const;
export type BuildErrorType = (typeof BUILD_ERROR_TYPES)[number];

/** What a client can act on. A resume that failed also carries the words of the platform. */
const buildErrorDetailSchema = z
  .object({
    message: z.string(),
    error_type: z.enum(BUILD_ERROR_TYPES),
    retryable: z.boolean().optional().meta({ description: 'Whether the same request may succeed later.' }),
    code: z.string().optional().meta({ description: "The platform's own code for the failure." }),
    platform_message: z.string().optional().meta({ description: "The platform's own words for it." }),
    checkpoint_id: z.string().optional().meta({ description: 'The checkpoint that is at fault.' }),
  })
  .meta({ id: 'BuildErrorDetail' });

/** Every answer of the builds' face that is not a success. */
export const buildErrorReplySchema = z
  .object({
    detail: z.union([z.string(), buildErrorDetailSchema]),
    debug_id: z.string().meta({ description: "Finds it in the server's log." }),
  })
  .meta({ id: 'BuildErrorReply' });
