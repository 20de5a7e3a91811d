/** The disk of the checkpoints. */
import { z } from 'zod';
import { idSchema } from './ids.ts';

/**
 * How much room there is: `low` is announced, `refusing` begins nothing new, and `full` lives on the reserve.
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
    lowBytes: z.number().int().meta({ description: 'With less free room than this the level is `low`.' }),
    refuseBytes: z.number().int().meta({
      description: 'With less free room than this creates, forks and snapshots are refused.',
    }),
    reserve: z
      .object({ heldBytes: z.number().int(), wantedBytes: z.number().int() })
      .nullable()
      .meta({ description: 'Room that is held back for a full disk, and how much it should be.' }),
    events: z
      .array(diskEventSchema)
      .meta({ description: 'The last 100 changes of the level, newest first.' }),
  })
  .meta({ id: 'Disk' });
export type DiskView = z.infer<typeof diskViewSchema>;
