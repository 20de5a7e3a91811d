import type { HostProcesses, ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { findProcesses, isMarked, type Membership } from './instance-processes.ts';

const sandboxId = 'sbx_aaaaaaaaaaaaaaaaaaaa';
const second: Membership = { sandboxId, includesGeneration: (one) => one === 2, users: [], agents: [] };

describe('the variables that name an instance', () => {
  it.each([
    ['count with its own value', [`TORPOR_SANDBOX=${sandboxId}`, `TORPOR_INSTANCE=${sandboxId}/2`], true],
    [
      'do not count with the value of another generation',
      [`TORPOR_SANDBOX=${sandboxId}`, `TORPOR_INSTANCE=${sandboxId}/1`],
      false,
    ],
    ['count when the value was overwritten', [`TORPOR_SANDBOX=${sandboxId}`, 'TORPOR_INSTANCE='], true],
    [
      'count when the value is not a number',
      [`TORPOR_SANDBOX=${sandboxId}`, `TORPOR_INSTANCE=${sandboxId}/x`],
      true,
    ],
    [
      'do not count with the values of another sandbox',
      ['TORPOR_SANDBOX=sbx_b', 'TORPOR_INSTANCE=sbx_b/2'],
      false,
    ],
    ['do not count when they are missing', [], false],
  ])('%s', (_, variables, expected) => {
    expect(isMarked(variables, second)).toBe(expected);
  });
});

describe('the processes of an instance', () => {
  const facts = (pid: number, parent: number, session: number): ProcessFacts => ({
    pid,
    parent,
    session,
    group: session,
    startedAt: String(pid),
    state: 'running',
  });
  const host = (processes: readonly ProcessFacts[], of: Partial<HostProcesses>): HostProcesses =>
    ({
      all: async () => [...processes],
      torporVariables: async () => [],
      userIds: async () => [],
      ...of,
    }) as unknown as HostProcesses;
  const pids = async (
    processes: readonly ProcessFacts[],
    of: Partial<HostProcesses>,
    more: Partial<Membership> = {},
  ) => (await findProcesses(host(processes, of), { ...second, ...more })).map(({ pid }) => pid);

  it('are those with its variables, their children and the processes of their sessions, parents first', async () => {
    const processes = [
      facts(50, 1, 40),
      facts(43, 42, 43),
      facts(42, 40, 42),
      facts(40, 9, 40),
      facts(9, 1, 9),
    ];
    const marks: HostProcesses['torporVariables'] = async ({ pid }) =>
      pid === 40 ? [`TORPOR_INSTANCE=${sandboxId}/2`] : [];
    expect(await pids(processes, { torporVariables: marks })).toEqual([40, 50, 42, 43]);
  });

  it('are those with its user as any of their user ids, and the recorded agent', async () => {
    const processes = [facts(10, 1, 10), facts(11, 1, 11), facts(12, 1, 12)];
    const users: HostProcesses['userIds'] = async ({ pid }) => (pid === 11 ? [0, 0, 700_000, 0] : [0]);
    const agents = [
      { pid: 12, startedAt: '12' },
      { pid: 10, startedAt: 'another' },
    ];
    expect(await pids(processes, { userIds: users }, { users: [700_000], agents })).toEqual([11, 12]);
  });

  it('never include kernel threads, the session of the server, or zombies', async () => {
    const dead: ProcessFacts = { ...facts(11, 1, 11), state: 'dead' };
    const processes = [facts(10, 2, 0), dead, facts(process.pid, 1, 12), facts(13, 1, 12)];
    const marks: HostProcesses['torporVariables'] = async () => [`TORPOR_INSTANCE=${sandboxId}/2`];
    expect(await pids(processes, { torporVariables: marks })).toEqual([]);
  });
});
