/** What runs, ran or was to run in a sandbox: its processes and its declared services. */
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
      .meta({ description: 'Of a process in the background; a service has its name.' }),
    jobId: idSchema('job')
      .nullable()
      .meta({ description: 'The tracked job that this is; null for a command that nobody tracks.' }),
    kind: z.enum(['process', 'background', 'service']),
    pid: z.number().int().nullable(),
    command: z.string(),
    cwd: z.string().nullable(),
    status: processStatusSchema,
    reason: z.string().nullable().meta({ description: 'Why it is lost, or how it ended.' }),
    startedAt: z.number().int().nullable(),
  })
  .meta({ id: 'Process' });
export type ProcessView = z.infer<typeof processViewSchema>;
