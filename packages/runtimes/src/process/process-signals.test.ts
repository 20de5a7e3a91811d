import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import type { ProcessFacts } from '../host-processes.ts';
import { killAll } from './process-signals.ts';

describe('killing a crowd', () => {
  it('goes on after a look in which the last of it could not be recognised', async () => {
    // Numbers that no process has.
    const [first, second] = [1, 2].map(
      (n): ProcessFacts => ({
        pid: 2 ** 30 + n,
        parent: 1,
        session: 7,
        startedAt: String(n),
        state: 'moving',
      }),
    );
    const looks = [[first], [], [second], []] as ProcessFacts[][];
    const waitedFor: number[] = [];
    const there = new Set([first, second]);
    await killAll(
      {
        find: async () => looks.shift() ?? [],
        isThere: async (facts) => {
          waitedFor.push(facts.pid);
          return there.delete(facts);
        },
        users: [],
        clock: systemClock,
      },
      unhurried,
    );
    expect(new Set(waitedFor)).toEqual(new Set([first?.pid, second?.pid]));
  });
});
