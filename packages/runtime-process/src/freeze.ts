/** Freezes and thaws an instance. Processes that a user of the sandbox had stopped before stay stopped. */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import { isSameProcess } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import { continueAll, stopAll } from './processes/process-signals.ts';
import { liveInstance, type RuntimeContext } from './runtime-context.ts';

/** The content of `frozen.json`: the processes that were stopped before the freeze. */
const stoppedSchema = z.array(z.object({ pid: z.int(), startedAt: z.string() }));

/** Resolves when no process of the instance runs any more. */
export async function freeze(ctx: RuntimeContext, instance: Instance, signal: AbortSignal): Promise<void> {
  const { state, processes } = await liveInstance(ctx, instance);
  const { frozen } = ctx.directory.paths(instance);
  // `stopAll` stops the agent first. While the agent runs, this server has stopped no process, so all stopped processes
  // were stopped by the sandbox. The list is written before the first process is stopped.
  if (state === 'running') {
    const stopped = (await processes.find()).filter((facts) => facts.state === 'stopped');
    await mapWriteErrors(frozen, async () => {
      await writeFile(`${frozen}.new`, JSON.stringify(stopped), { mode: 0o600 });
      await rename(`${frozen}.new`, frozen);
    });
  }
  await stopAll(processes, signal);
}

/** Does nothing to a running instance. */
export async function thaw(ctx: RuntimeContext, instance: Instance, signal: AbortSignal): Promise<void> {
  const { state, processes } = await liveInstance(ctx, instance);
  const { frozen } = ctx.directory.paths(instance);
  if (state === 'frozen') {
    const before = await readStopped(frozen);
    await continueAll(processes, (facts) => before.some((one) => isSameProcess(facts, one)), signal);
  }
  await rm(frozen, { force: true });
}

/** Without the file, a program outside this server froze the instance, and all processes are continued. */
async function readStopped(path: string): Promise<z.infer<typeof stoppedSchema>> {
  try {
    return stoppedSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return [];
  }
}
