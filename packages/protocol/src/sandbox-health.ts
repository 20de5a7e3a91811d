/** The health, the metrics and the disk usage of a sandbox: reads that never wake it. */
import { z } from 'zod';
import { idSchema } from './ids.ts';
import { sandboxStateSchema } from './states.ts';
import { errorBodySchema, evidenceSchema } from './views.ts';

/** `answers` and `silent` apply to a running sandbox; in every other state there is no agent to ask. */
export const agentHealthSchema = z.enum(['answers', 'silent', 'not_running']);
export type AgentHealth = z.infer<typeof agentHealthSchema>;

export const sandboxHealthSchema = z
  .object({
    sandboxId: idSchema('sbx'),
    state: sandboxStateSchema,
    evidence: evidenceSchema,
    observedAt: z.number().int(),
    generation: z.number().int(),
    agent: agentHealthSchema.meta({ description: 'Whether the agent in the sandbox answered just now.' }),
    agentError: errorBodySchema.nullable().meta({ description: 'Why the agent is silent.' }),
    uptimeSeconds: z
      .number()
      .int()
      .nullable()
      .meta({ description: 'Since the last start; null when the sandbox does not run.' }),
  })
  .meta({ id: 'SandboxHealth' });
export type SandboxHealth = z.infer<typeof sandboxHealthSchema>;

const LIMIT = 'What the sandbox may write, by its `diskMb`; null where the runtime does not limit it.';
const COUNTED = 'What counts towards the limit: the files of the sandbox without those of its template.';

/** What a running sandbox uses at one moment. The server keeps no history of it. */
export const sandboxMetricsSchema = z
  .object({
    at: z.number().int(),
    cpuCount: z.number(),
    cpuUsedPercent: z
      .number()
      .meta({ description: 'Of all CPUs together, since the previous reading; 0 for the first.' }),
    memoryUsedBytes: z.number(),
    memoryTotalBytes: z.number(),
    diskUsedBytes: z.number().meta({ description: 'As `df` shows it in the sandbox, like the total.' }),
    diskTotalBytes: z.number(),
    diskLimitBytes: z.number().nullable().meta({ description: LIMIT }),
    diskCountedBytes: z.number().nullable().meta({ description: COUNTED }),
  })
  .meta({ id: 'SandboxMetrics' });
export type SandboxMetrics = z.infer<typeof sandboxMetricsSchema>;

export const driveViewSchema = z
  .object({
    path: z.string().meta({ description: 'The mount point in the sandbox.' }),
    totalBytes: z.number(),
    usedBytes: z.number(),
    freeBytes: z.number(),
    limitBytes: z.number().nullable().meta({ description: LIMIT }),
    countedBytes: z.number().nullable().meta({ description: COUNTED }),
  })
  .meta({ id: 'Drive' });
export type DriveView = z.infer<typeof driveViewSchema>;
