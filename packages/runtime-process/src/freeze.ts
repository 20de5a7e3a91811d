/** Freezing an instance and letting it go on, so that jobs its user had stopped stay stopped. */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import type { Instance } from '@torpor/engine';
import { isSameProcess, type ProcessFacts } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { type Ground, liveInstance } from './ground.ts';
import { continueAll, stopAll } from './process-signals.ts';

type Named = Pick<ProcessFacts, 'pid' | 'startedAt'>;

/** Resolves when nothing of the instance moves any more. */
export async function freeze(ground: Ground, instance: Instance, signal: AbortSignal): Promise<void> {
  const { state, crowd } = await liveInstance(ground, instance);
  const { frozen } = ground.directory.paths(instance);
  // The agent is stopped first: while it runs nobody was stopped by us. Written before anybody is.
  if (state === 'running') {
    const stopped = (await crowd.find()).filter((facts) => facts.state === 'stopped');
    await mapWriteErrors(frozen, async () => {
      await writeFile(`${frozen}.new`, JSON.stringify(stopped), { mode: 0o600 });
      await rename(`${frozen}.new`, frozen);
    });
  }
  await stopAll(crowd, signal);
}

/** A running instance is left alone. */
export async function thaw(ground: Ground, instance: Instance, signal: AbortSignal): Promise<void> {
  const { state, crowd } = await liveInstance(ground, instance);
  const { frozen } = ground.directory.paths(instance);
  if (state === 'frozen') {
    const before = await stoppedBefore(frozen);
    await continueAll(crowd, (facts) => before.some((one) => isSameProcess(facts, one)), signal);
  }
  await rm(frozen, { force: true });
}

async function stoppedBefore(path: string): Promise<readonly Named[]> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Named[];
  } catch {
    // Somebody else froze it.
    return [];
  }
}
