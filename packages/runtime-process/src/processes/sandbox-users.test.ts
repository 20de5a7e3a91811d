import type { HostProcesses, ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { chooseUser } from './sandbox-users.ts';

const RANGE = { first: 5_000, count: 1 };

/** A machine with one process, of the only user in the range. */
function hostWith(state: ProcessFacts['state']): HostProcesses {
  const facts = { pid: 7, parent: 1, session: 7, group: 7, startedAt: '1', state } satisfies ProcessFacts;
  return {
    all: async () => [facts],
    userIds: async () => [RANGE.first],
  } as Partial<HostProcesses> as HostProcesses;
}

describe('the user of a new sandbox', () => {
  it('is none that a process of the machine runs as', async () => {
    const chosen = chooseUser(RANGE, new Set(), hostWith('running'));
    await expect(chosen).rejects.toMatchObject({ code: 'capacity' });
  });

  it('may be that of a zombie', async () => {
    expect(await chooseUser(RANGE, new Set(), hostWith('dead'))).toBe(RANGE.first);
  });
});
