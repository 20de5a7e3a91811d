/** Nodes: the servers that share a database, each with a data directory on its own machine. */
import { z } from 'zod';

/** As in host names: it is a part of file names, labels and messages. */
export const nodeNameSchema = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'lower-case letters, digits and -, at most 63');

const drainViewSchema = z.object({
  startedAt: z.number().int(),
  endedAt: z.number().int().nullable().meta({ description: 'Null while anything is left to be moved.' }),
  moved: z.number().int().meta({ description: 'Running sandboxes that went on another node.' }),
  replicated: z.number().int().meta({ description: 'Sleeping sandboxes that other nodes can wake.' }),
  left: z.number().int(),
  failures: z.array(z.object({ sandboxId: z.string(), why: z.string() })).meta({
    description: 'Sandboxes that the last round could not move, at most twenty. The next round tries again.',
  }),
});

export const nodeViewSchema = z
  .object({
    name: z.string(),
    address: z.string(),
    self: z.boolean().meta({ description: 'Whether this node has answered the request.' }),
    state: z.enum(['alive', 'away']).meta({ description: 'By its lease, and the clock of the database.' }),
    leaseUntil: z.number().int(),
    heldSince: z.number().int(),
    fencedAt: z.number().int().nullable().meta({
      description: 'When its epoch was raised and its running sandboxes were given up. Null when it is back.',
    }),
    epoch: z.number().int(),
    version: z.string(),
    cordoned: z.boolean(),
    draining: z.boolean(),
    capacity: z.object({
      memoryMb: z.number().int(),
      processors: z.number().int(),
      diskBytes: z.number().int(),
      cacheBytes: z.number().int().nullable().default(null).meta({
        description: 'How much of the disk its checkpoints may take; more is evicted. Null: no bound.',
      }),
    }),
    used: z.object({
      memoryMb: z.number().int().meta({ description: 'What its running sandboxes are allowed together.' }),
      diskBytes: z.number().int(),
      cacheBytes: z
        .number()
        .int()
        .nullable()
        .default(null)
        .meta({ description: 'What its checkpoints take on its disk. Null when it has no store.' }),
      running: z
        .number()
        .int()
        .meta({ description: 'Sandboxes that run, start, pause or are being killed.' }),
      paused: z.number().int(),
      unknown: z.number().int().meta({
        description:
          'Sandboxes that were running when the node was given up, and of which nothing is in the store.',
      }),
    }),
    fingerprint: z.record(z.string(), z.string()).meta({
      description: 'What memory images of each runtime need of a machine. Equal texts fit.',
    }),
    drain: drainViewSchema.nullable(),
  })
  .meta({ id: 'Node' });
export type NodeView = z.infer<typeof nodeViewSchema>;

export const forgottenNodeSchema = z
  .object({
    name: z.string(),
    lost: z.number().int().meta({ description: 'Sandboxes of which nothing was in the store.' }),
    kept: z.number().int().meta({ description: 'Sandboxes that other nodes can wake.' }),
  })
  .meta({ id: 'ForgottenNode' });
export type ForgottenNode = z.infer<typeof forgottenNodeSchema>;
