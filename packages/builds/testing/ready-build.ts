/** A ready build with a paused preview, created without a worker. */
import type { JobId, SandboxId } from '@torpor/protocol';
import { submit } from '../src/jobs/submit.ts';
import { transition } from '../src/jobs/transition.ts';
import { predictVersion } from '../src/jobs/version.ts';
import { type BuildWorld, OWNER } from './build-world.ts';

const STAGES = ['starting', 'scaffold', 'code', 'deps', 'checks'] as const;
export const PORT = 3000;

export async function readyBuild(
  { ctx, provider }: Pick<BuildWorld, 'ctx' | 'provider'>,
  { paused = true }: { readonly paused?: boolean } = {},
): Promise<{ readonly id: JobId; readonly sandboxId: SandboxId }> {
  const order = { ...OWNER, projectId: 'site', goal: 'a site', runner: 'starter' } as const;
  const { id } = await submit(ctx, order);
  const { signal } = new AbortController();
  const sandboxOrder = { org: OWNER.org, jobId: id, lifetimeSeconds: 3_600 };
  const sandboxId = await provider.create(sandboxOrder, signal);
  await provider.publish(sandboxOrder, sandboxId, { name: 'dev-server', command: 'x', port: PORT }, signal);
  if (paused) await provider.pause(OWNER.org, sandboxId);
  const change = {
    sandboxId,
    port: PORT,
    previewUrl: provider.urlOf(sandboxId, PORT),
    workspacePath: '/home/user/project',
    buildVersion: await predictVersion(ctx.db, OWNER.org, 'site'),
    sandboxPaused: paused ? (1 as const) : (0 as const),
  };
  await ctx.db.transaction(async (tx) => {
    const at = ctx.clock.now();
    for (const stage of STAGES) await transition(tx, id, stage, { at });
    await transition(tx, id, 'ready', { at, change });
  });
  provider.calls.length = 0;
  return { id, sandboxId };
}
