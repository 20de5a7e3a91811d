/**
 * Tracked jobs: the declared services and background processes of a sandbox. A job follows its
 * sandbox: it is `running` only while the sandbox runs, and `suspended` only while the sandbox sleeps with its memory.
 */
import { z } from 'zod';
import { buildStateSchema } from './builds.ts';
import { idSchema } from './ids.ts';

export const JOB_STATES = ['running', 'suspended', 'completed', 'lost'] as const;
export const jobStateSchema = z.enum(JOB_STATES);
export type JobState = z.infer<typeof jobStateSchema>;

/** The changes of a job after its creation. Each is also an event of the ledger, for example `job.suspended`. */
export const JOB_CHANGES = ['suspended', 'resumed', 'restarted', 'completed', 'lost'] as const;
export type JobChange = (typeof JOB_CHANGES)[number];

/**
 * The state after each change; a change that is not listed is refused. A job that has ended runs again only when
 * its sandbox is brought back to a checkpoint in which it ran (`resumed`), or when it is a service and the sandbox is
 * started again (`restarted`).
 */
export const JOB_TRANSITIONS: Readonly<Record<JobState, Readonly<Partial<Record<JobChange, JobState>>>>> = {
  running: { suspended: 'suspended', restarted: 'running', completed: 'completed', lost: 'lost' },
  suspended: { resumed: 'running', restarted: 'running', lost: 'lost' },
  completed: { resumed: 'running', restarted: 'running' },
  lost: { resumed: 'running', restarted: 'running' },
};

export function hasJobEnded(state: JobState): boolean {
  return state === 'completed' || state === 'lost';
}

/** The reasons for which a job is lost, each with the sentence that people read. */
export const JOB_LOSSES = {
  files_only_pause:
    'The sandbox was paused and only its files were kept. A service starts again with the sandbox.',
  crash: 'The processes of the sandbox ended unexpectedly; its files were recovered.',
  rollback: 'The sandbox was started from a checkpoint in which the job did not run.',
  fallback: 'The sandbox was started without the memory in which the job ran.',
  sandbox_killed: 'The sandbox was killed.',
  sandbox_lost: 'The sandbox is lost.',
  not_found:
    'It does not run in the sandbox, and nothing is known of how it ended or whether it ever started.',
} as const;
export type JobLoss = keyof typeof JOB_LOSSES;
export const jobLossSchema = z.enum(Object.keys(JOB_LOSSES) as [JobLoss, ...JobLoss[]]);

export const trackedJobKindSchema = z.enum(['service', 'process']);
export type TrackedJobKind = z.infer<typeof trackedJobKindSchema>;

export const trackedJobSchema = z
  .object({
    id: idSchema('job'),
    kind: trackedJobKindSchema,
    sandboxId: idSchema('sbx'),
    name: z.string().nullable().meta({ description: 'The name of a service; null for a process.' }),
    command: z.string(),
    cwd: z.string().nullable(),
    pid: z.number().int().nullable().meta({ description: 'Inside the sandbox. Null for a service.' }),
    state: jobStateSchema,
    generation: z
      .number()
      .int()
      .meta({ description: 'The generation of the sandbox in which the process started.' }),
    restarts: z
      .number()
      .int()
      .meta({ description: 'How often a service was started again because its process did not survive.' }),
    forkedFrom: idSchema('job')
      .nullable()
      .meta({ description: 'The job of another sandbox whose process this one is a copy of.' }),
    createdAt: z.number().int(),
    startedAt: z.number().int().meta({ description: 'When the present process of the job started.' }),
    endedAt: z.number().int().nullable(),
    exitCode: z.number().int().nullable().meta({
      description: 'For a completed job; 128 plus the number of the signal when a signal ended it.',
    }),
    signal: z.string().nullable(),
    lost: z
      .object({ reason: jobLossSchema, message: z.string() })
      .nullable()
      .meta({ description: 'Why a lost job is lost.' }),
  })
  .meta({ id: 'TrackedJob' });
export type TrackedJobView = z.infer<typeof trackedJobSchema>;

export const buildReferenceSchema = z
  .object({
    id: idSchema('job'),
    kind: z.literal('build'),
    status: buildStateSchema,
    sandboxId: idSchema('sbx').nullable(),
    url: z.string().meta({ description: 'The address of the build in the builds API.' }),
  })
  .meta({ id: 'BuildReference' });
export type BuildReference = z.infer<typeof buildReferenceSchema>;

/** A job of any kind: what an id with the prefix `job_` can name. */
export const anyJobSchema = z.union([trackedJobSchema, buildReferenceSchema]);
export type AnyJobView = z.infer<typeof anyJobSchema>;

/** How long `DELETE /v1/jobs/{id}` waits after SIGTERM before it sends SIGKILL. */
export const DEFAULT_GRACE_SECONDS = 10;
export const MAX_GRACE_SECONDS = 60;
