/** Why an instance has ended: the reason that the runtime has recorded, or the one that its control group shows. */
import { readFile } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import type { Resources } from '@torpor/protocol';
import { z } from 'zod';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { withDefaults } from './default-limits.ts';

export const REASONS = {
  memory: ({ memoryMb }: Resources) => `it used more than the ${memoryMb} MB of memory that it may have`,
  disk: ({ diskMb }: Resources) => `its files take more than the ${diskMb} MB that they may take`,
  processes: ({ processes }: Resources) => `it started more than the ${processes} processes that it may have`,
} as const;

/** The file `ended.json` of an instance. */
const endedSchema = z.object({ why: z.string() });

export async function endReason(
  ctx: RuntimeContext,
  instance: Instance,
  { container, resources }: InstanceRecord,
): Promise<string> {
  const recorded = await readFile(ctx.files.paths(instance).ended, 'utf8').catch(() => '');
  return (
    recordedReason(recorded) ??
    (await exceededLimit(ctx, container.id, withDefaults(resources))) ??
    'its processes have ended'
  );
}

/** Which limit of its control group an instance has exceeded, if any. Known until the group is removed. */
export async function exceededLimit(
  { cgroups }: RuntimeContext,
  name: string,
  limits: Resources,
): Promise<string | undefined> {
  const refused = await cgroups?.refused(name).catch(() => undefined);
  if (refused === undefined) return undefined;
  if (limits.memoryMb !== undefined && refused.memory > 0) return REASONS.memory(limits);
  if (limits.processes !== undefined && refused.processes > 0) return REASONS.processes(limits);
  return undefined;
}

function recordedReason(text: string): string | undefined {
  try {
    return endedSchema.safeParse(JSON.parse(text)).data?.why;
  } catch {
    return undefined;
  }
}
