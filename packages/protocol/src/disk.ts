/** The disk of the checkpoints. */
import { z } from 'zod';
import { idSchema } from './ids.ts';

/**
 * The level of free space: `low` is announced, `refusing` starts no new work, and `full` uses the reserve.
 */
export const DISK_LEVELS = ['ok', 'low', 'refusing', 'full'] as const;
export const diskLevelSchema = z.enum(DISK_LEVELS).meta({ id: 'DiskLevel' });
export type DiskLevel = z.infer<typeof diskLevelSchema>;

export const diskEventSchema = z
  .object({
    id: idSchema('evt'),
    at: z.number().int(),
    type: z.enum(['disk.ok', 'disk.low', 'disk.refusing', 'disk.full']),
    previousLevel: diskLevelSchema,
    freeBytes: z.number().int(),
    totalBytes: z.number().int(),
  })
  .meta({ id: 'DiskEvent' });
export type DiskEvent = z.infer<typeof diskEventSchema>;

export const diskViewSchema = z
  .object({
    level: diskLevelSchema,
    freeBytes: z.number().int(),
    totalBytes: z.number().int(),
    lowBytes: z.number().int().meta({ description: 'With less free space than this the level is `low`.' }),
    refuseBytes: z.number().int().meta({
      description: 'With less free space than this, creates, forks and snapshots are refused.',
    }),
    reserve: z
      .object({ heldBytes: z.number().int(), wantedBytes: z.number().int() })
      .nullable()
      .meta({ description: 'Space reserved for a full disk: its present and its intended size.' }),
    cache: z
      .object({
        bytes: z.number().int(),
        limitBytes: z.number().int().nullable().meta({ description: 'Null: no bound.' }),
      })
      .nullable()
      .default(null)
      .meta({
        description:
          'What the checkpoints on this disk take, and from when on those that the store has are evicted. Null without a store.',
      }),
    events: z
      .array(diskEventSchema)
      .meta({ description: 'The last 100 changes of the level, newest first.' }),
  })
  .meta({ id: 'Disk' });
export type DiskView = z.infer<typeof diskViewSchema>;
