/** Boots a tiny sandbox, freezes it, saves its memory, kills it and brings it back, to know that it can be done. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { type Container, Runsc } from '../runsc/runsc.ts';
import { writeTinyBundle } from './tiny-bundle.ts';

/** Throws with runsc's own words when it cannot. Works in an empty directory that nobody else has. */
export async function trialBoot(program: string, place: string, signal: AbortSignal): Promise<void> {
  // Without control groups and network, which are looked at on their own.
  const runsc = new Runsc({ program, root: join(place, 'root'), network: 'none', ignoreCgroups: true });
  const first = await tiny(place, 'first');
  const second = await tiny(place, 'second');
  const image = join(place, 'image');
  try {
    await runsc.run(first, signal);
    await runsc.pause(first, signal);
    await runsc.checkpoint(first, image, signal);
    await runsc.resume(first, signal);
    await runsc.end(first, signal);
    await runsc.create(second, signal);
    await runsc.restore(second, image, signal);
    const { is } = await runsc.state(second, signal);
    if (is !== 'running') throw new TorporError('internal', `The restored sandbox is ${is}.`);
  } finally {
    // Not with the caller's signal: what was made is taken away when it has been aborted, too.
    const unhurried = new AbortController().signal;
    for (const container of [first, second]) {
      await runsc.end(container, unhurried);
      await runsc.forget(container.id);
    }
  }
}

async function tiny(place: string, id: string): Promise<Container> {
  const bundle = join(place, id);
  await mkdir(bundle);
  await writeTinyBundle(bundle, { args: ['sleep', 'infinity'] });
  return { id, bundle, logs: join(bundle, 'logs'), netns: null };
}
