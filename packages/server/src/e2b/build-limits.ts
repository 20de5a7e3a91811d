/** The limits that a template build of E2B names, as those of Torpor. */
import { type Resources, resourcesSchema } from '@torpor/protocol';
import { z } from 'zod';
import { DEFAULT_LIMITS } from './sandbox-shapes.ts';

const { memoryMb, cpus } = resourcesSchema.shape;
const MAX_DISK_MB = 1024 ** 3;

/** Fields of the request. The bounds are those of a sandbox. */
export const buildLimitFields = {
  cpuCount: cpus.unwrap().int().min(1).nullish(),
  memoryMB: memoryMb.unwrap().min(128).nullish(),
  minFreeDiskMb: z.number().int().min(0).max(MAX_DISK_MB).nullish(),
};

type BuildLimits = z.infer<z.ZodObject<typeof buildLimitFields>>;

/** Like E2B, `minFreeDiskMb` only adds to what a sandbox may write anyway. */
export function resourcesOf({ cpuCount, memoryMB, minFreeDiskMb }: BuildLimits): Resources {
  const disk = minFreeDiskMb ?? 0;
  return {
    ...(cpuCount == null ? {} : { cpus: cpuCount }),
    ...(memoryMB == null ? {} : { memoryMb: memoryMB }),
    ...(disk > DEFAULT_LIMITS.diskMb ? { diskMb: disk } : {}),
  };
}
