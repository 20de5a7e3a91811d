/** Why an instance has ended: what was written down about it, or else what its control group tells. */
import { readFile } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import type { Resources } from '@torpor/protocol';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { withDefaults } from './default-limits.ts';

export const REASONS = {
  memory: ({ memoryMb }: Resources) => `it used more than the ${memoryMb} MB of memory that it may have`,
  disk: ({ diskMb }: Resources) => `its files take more than the ${diskMb} MB that they may take`,
  processes: ({ processes }: Resources) => `it started more than the ${processes} processes that it may have`,
} as const;

export async function endReason(
  ctx: RuntimeContext,
  instance: Instance,
  { container, resources }: InstanceRecord,
): Promise<string> {
  const written = await readFile(ctx.files.paths(instance).ended, 'utf8').catch(() => '');
  return (
    whyOf(written) ??
    (await passedLimit(ctx, container.id, withDefaults(resources))) ??
    'its processes have ended'
  );
}

/** Which limit of the kernel's it has run against, if any. It outlives the processes. */
export async function passedLimit(
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

function whyOf(text: string): string | undefined {
  try {
    return (JSON.parse(text) as { readonly why?: string }).why;
  } catch {
    return undefined;
  }
}
