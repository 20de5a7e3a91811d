/** Answers that are more than one view, and views too small for a file of their own. */
import { z } from 'zod';
import { diskLevelSchema } from './disk.ts';
import { checkpointViewSchema, errorBodySchema, pageSchema, sandboxViewSchema } from './views.ts';

/** Every answer that is not a success. */
export const errorReplySchema = z.object({ error: errorBodySchema }).meta({ id: 'ErrorReply' });

/** One item per fork that was asked for; one that failed does not hide the others. */
export const forkReplySchema = z
  .object({ items: z.array(z.union([z.object({ sandbox: sandboxViewSchema }), errorReplySchema])) })
  .meta({ id: 'ForkReply' });
export type ForkReply = z.infer<typeof forkReplySchema>;

export const checkpointPageSchema = pageSchema(checkpointViewSchema).extend({
  bytes: z.number().int().meta({ description: 'What all checkpoints of the sandbox take together.' }),
});
export type CheckpointPage = z.infer<typeof checkpointPageSchema>;

export const healthSchema = z
  .object({
    status: z.enum(['ok', 'degraded']),
    version: z.string(),
    runtime: z.string(),
    database: z.enum(['ok', 'unavailable']),
    disk: diskLevelSchema.meta({
      description:
        'Room on the disk of the checkpoints. From `refusing` on, creates, forks and snapshots are refused.',
    }),
    uptimeSeconds: z.number(),
  })
  .meta({ id: 'Health' });
export type Health = z.infer<typeof healthSchema>;
