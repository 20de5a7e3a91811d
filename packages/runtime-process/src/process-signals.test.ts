import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { killAll } from './process-signals.ts';

/** Numbers that no process has. */
const [first, second, third] = [1, 2, 3].map(
  (n): ProcessFacts => ({
    pid: 2 ** 30 + n,
    parent: 1,
    session: 7,
    startedAt: String(n),
    state: 'moving',
  }),
) as [ProcessFacts, ProcessFacts, ProcessFacts];

/** Whom it has waited for, when these are seen one look after the other and each ends when it is killed. */
async function killed(looks: ProcessFacts[][]): Promise<Set<ProcessFacts>> {
  const waitedFor = new Set<ProcessFacts>();
  const isThere = async (facts: ProcessFacts) => {
    const isNew = !waitedFor.has(facts);
    waitedFor.add(facts);
    return isNew;
  };
  const find = async () => looks.shift() ?? [];
  await killAll({ find, isThere, users: [], clock: systemClock }, unhurried);
  return waitedFor;
}

describe('killing a crowd', () => {
  it('goes on after a look in which the last of it could not be recognised', async () => {
    expect(await killed([[first], [], [second], []])).toEqual(new Set([first, second]));
  });

  it('goes on for longer where new ones were seen to come', async () => {
    const missed = [[], [], [], []];
    expect(await killed([[first], [second], ...missed, [third]])).toEqual(new Set([first, second, third]));
  });
});
