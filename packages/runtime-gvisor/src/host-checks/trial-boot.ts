/** Proves that a runsc works here: boots a tiny sandbox, pauses it, captures its memory, kills and restores it. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { Runsc } from '../runsc/runsc.ts';
import type { Container } from '../runsc/runsc-container.ts';
import { writeTinyBundle } from './tiny-bundle.ts';

/** Throws runsc's error when a step fails. `directory` must be empty. */
export async function trialBoot(program: string, directory: string, signal: AbortSignal): Promise<void> {
  // Control groups and network have checks of their own.
  const runsc = new Runsc({ program, root: join(directory, 'root'), network: 'none', ignoreCgroups: true });
  const first = await tinyContainer(directory, 'first');
  const second = await tinyContainer(directory, 'second');
  const image = join(directory, 'image');
  try {
    await runsc.run(first, signal);
    await runsc.freeze(first, signal);
    await runsc.writeImage(first, image, signal);
    await runsc.thaw(first, signal);
    await runsc.killProcesses(first, signal);
    await runsc.create(second, signal);
    await runsc.restore(second, image, signal);
    const { is } = await runsc.state(second, signal);
    if (is !== 'running') throw new TorporError('internal', `The restored sandbox is ${is}.`);
  } finally {
    // The containers are removed also when the caller has aborted.
    const neverAborted = new AbortController().signal;
    for (const container of [first, second]) {
      await runsc.killProcesses(container, neverAborted);
      await runsc.deleteState(container.id);
    }
  }
}

async function tinyContainer(directory: string, id: string): Promise<Container> {
  const bundle = join(directory, id);
  await mkdir(bundle);
  await writeTinyBundle(bundle, { args: ['sleep', 'infinity'] });
  return { id, bundle, logs: join(bundle, 'logs'), netns: null };
}
