/** Replies that combine several views, and small views. */
import { z } from 'zod';
import { diskLevelSchema } from './disk.ts';
import { checkpointViewSchema, errorBodySchema, pageSchema, sandboxViewSchema } from './views.ts';

/** Every unsuccessful response. */
export const errorReplySchema = z.object({ error: errorBodySchema }).meta({ id: 'ErrorReply' });

/** One item per requested fork: a sandbox or an error. */
export const forkReplySchema = z
  .object({ items: z.array(z.union([z.object({ sandbox: sandboxViewSchema }), errorReplySchema])) })
  .meta({ id: 'ForkReply' });
export type ForkReply = z.infer<typeof forkReplySchema>;

export const checkpointPageSchema = pageSchema(checkpointViewSchema).extend({
  bytes: z.number().int().meta({ description: 'The total size of all checkpoints of the sandbox.' }),
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
