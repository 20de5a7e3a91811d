import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { killAll } from './process-signals.ts';

/** Pids that no process has. */
const [first, second, third] = [1, 2, 3].map(
  (n): ProcessFacts => ({
    pid: 2 ** 30 + n,
    parent: 1,
    session: 2 ** 30,
    group: 2 ** 30,
    startedAt: String(n),
    state: 'running',
  }),
) as [ProcessFacts, ProcessFacts, ProcessFacts];

/** Runs `killAll` with these results of consecutive looks; every process ends when it is killed. Returns the awaited pids. */
async function killed(looks: ProcessFacts[][]): Promise<Set<ProcessFacts>> {
  const waitedFor = new Set<ProcessFacts>();
  const exists = async (facts: ProcessFacts) => {
    const isNew = !waitedFor.has(facts);
    waitedFor.add(facts);
    return isNew;
  };
  const find = async () => looks.shift() ?? [];
  await killAll({ find, exists, users: [], clock: systemClock }, unhurried);
  return waitedFor;
}

describe('killing all processes of an instance', () => {
  it('continues after a look in which the last process could not be recognised', async () => {
    expect(await killed([[first], [], [second], []])).toEqual(new Set([first, second]));
  });

  it('looks more often when new processes have appeared', async () => {
    const missed = [[], [], [], []];
    expect(await killed([[first], [second], ...missed, [third]])).toEqual(new Set([first, second, third]));
  });
});
