/** Shows how far a template is while it is made, where a spinner shows it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cli } from './cli.ts';

const POLL_EVERY_MS = 1_000;
const BAR_WIDTH = 20;

export async function withTemplateProgress<T>(
  cli: Cli,
  name: string,
  label: string,
  work: Promise<T>,
): Promise<T> {
  if (!cli.io.stderr.isTTY || cli.json) return work;
  const stopped = new AbortController();
  const signal = AbortSignal.any([cli.signal, stopped.signal]);
  let phase = '';
  const poll = async () => {
    const { templates } = await cli.torpor();
    for (;;) {
      await sleep(POLL_EVERY_MS, undefined, { signal });
      phase = await templates.get(name, { signal }).then(
        (template) => template.phase ?? '',
        () => '',
      );
    }
  };
  poll().catch(() => {});
  return cli.withSpinner(() => `${label} ${withBar(phase)}`, work).finally(() => stopped.abort());
}

/** Puts a bar before a phase that counts bytes: `unpacking layer 2 of 5: 34 of 120 MB`. */
export function withBar(phase: string): string {
  const [, done, all] = /(\d+(?:\.\d+)?) of (\d+(?:\.\d+)?) MB$/.exec(phase) ?? [];
  if (done === undefined || Number(all) === 0) return phase;
  const full = Math.min(BAR_WIDTH, Math.round((BAR_WIDTH * Number(done)) / Number(all)));
  return `${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)} ${phase}`;
}
