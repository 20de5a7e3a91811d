/** What only the runtime of a running sandbox knows: where the sandbox can be reached, and the disk space that it uses. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { Address, AgentAddress, DiskUsage, Instance, Runtime } from '../ports/runtime.ts';
import { refusedBy } from '../refused-by.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { observeRunning } from './sandboxes.ts';

/** How to talk to the agent of a running sandbox; the caller holds a lease while it talks. */
export async function agent(ctx: Context, org: string, id: SandboxId): Promise<AgentAddress> {
  return askRuntime(ctx, org, id, 'Finding the agent', (runtime, instance, signal) =>
    runtime.agent(instance, signal),
  );
}

/** Where a port of a running sandbox can be dialled, or null when nothing in the sandbox listens there. */
export async function dial(ctx: Context, org: string, id: SandboxId, port: number): Promise<Address | null> {
  return askRuntime(ctx, org, id, 'Finding the port', (runtime, instance, signal) =>
    runtime.dial(instance, port, signal),
  );
}

/** Undefined when the runtime of the sandbox does not limit disk space. */
export async function diskUsage(ctx: Context, org: string, id: SandboxId): Promise<DiskUsage | undefined> {
  return askRuntime(ctx, org, id, 'Measuring the files', async (runtime, instance, signal) =>
    runtime.diskUsage?.(instance, signal),
  );
}

async function askRuntime<T>(
  ctx: Context,
  org: string,
  id: SandboxId,
  what: string,
  ask: (runtime: Runtime, instance: Instance, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const sandbox = await getSandbox(ctx.db, id, org);
  if (sandbox.state !== 'running') throw refusedBy(sandbox, `The sandbox is ${sandbox.state}.`);
  const instance = { sandboxId: id, generation: sandbox.generation };
  const runtime = runtimeOf(ctx, sandbox);
  try {
    const found = await withTimeout(ctx.clock, ctx.settings.observeMs, what, (signal) =>
      ask(runtime, instance, signal),
    );
    if (found === null) await throwIfEnded(ctx, sandbox);
    return found;
  } catch (thrown) {
    if (thrown instanceof TorporError && thrown.code === 'unreachable') await throwIfEnded(ctx, sandbox);
    throw thrown;
  }
}

/** A call that reached nothing may have met a sandbox that has ended; throws then. */
async function throwIfEnded(ctx: Context, { org, id }: Sandbox): Promise<void> {
  const seen = await observeRunning(ctx, org, id);
  if (seen?.found.is !== 'gone') return;
  const now = await getSandbox(ctx.db, id, org);
  if (now.state !== 'running') throw refusedBy(now, `The sandbox is ${now.state}.`);
}
