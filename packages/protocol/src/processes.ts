/** The processes and declared services of a sandbox: running, ended, or lost. */
import { z } from 'zod';
import { idSchema } from './ids.ts';

/** Every tracked process follows its sandbox: none is `running` while the sandbox is paused (R98). */
export const processStatusSchema = z.enum(['running', 'suspended', 'restarted', 'lost', 'exited']);
export type ProcessStatus = z.infer<typeof processStatusSchema>;

export const processViewSchema = z
  .object({
    id: z
      .string()
      .nullable()
      .meta({ description: 'The id of a background process, or the name of a service.' }),
    jobId: idSchema('job')
      .nullable()
      .meta({ description: 'The id of the tracked job; null for a command that is not tracked.' }),
    kind: z.enum(['process', 'background', 'service']),
    pid: z.number().int().nullable(),
    command: z.string(),
    cwd: z.string().nullable(),
    status: processStatusSchema,
    reason: z.string().nullable().meta({ description: 'Why the process is lost, or how it ended.' }),
    startedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Process' });
export type ProcessView = z.infer<typeof processViewSchema>;
