import type { EventView, NodeView, SandboxView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { type Known, mattersOf } from './attention.ts';

const NOW = 1_000_000_000;
const sandbox = (over: Partial<SandboxView>) =>
  ({
    id: 'sbx_1',
    name: 'web',
    state: 'running',
    evidence: 'running',
    observedAt: NOW,
    checkpointHealth: null,
    reason: null,
    deletesAt: null,
    createdAt: NOW,
    ...over,
  }) as SandboxView;
const known = (over: Partial<Known>): Known => ({
  sandboxes: [],
  events: [],
  health: undefined,
  disk: undefined,
  machine: undefined,
  nodes: [],
  now: NOW,
  ...over,
});
const titles = (over: Partial<Known>) => mattersOf(known(over)).map(({ title }) => title);

describe('what needs attention', () => {
  it('is nothing when all is well', () => {
    expect(titles({ sandboxes: [sandbox({})] })).toEqual([]);
  });

  it('is an old program of the machine, with what to do about it', () => {
    const findings = [{ name: 'runsc', ok: true, detail: '28 months old; slow', fix: 'use a newer runsc' }];
    const machine = { at: NOW, cpus: 2, load: 0, memoryTotalBytes: 2, memoryAvailableBytes: 1, findings };
    expect(mattersOf(known({ machine }))).toEqual([
      { id: 'machine runsc', weight: 'warn', title: 'runsc: 28 months old', advice: 'Use a newer runsc.' },
    ]);
  });

  it('is a lost, failed or unconfirmed sandbox', () => {
    const all = [
      sandbox({ state: 'lost' }),
      sandbox({ state: 'failed' }),
      sandbox({ evidence: 'unknown', observedAt: NOW - 60_000 }),
    ];
    expect(titles({ sandboxes: all })).toEqual([
      'web is lost',
      'web never ran',
      'web could not be asked for 1\u00a0min',
    ]);
  });

  it('is a damaged checkpoint, and a deletion that is near', () => {
    const checkpointHealth = {
      health: 'damaged',
      parts: ['memory'],
      reason: null,
      verifiedAt: null,
    } as const;
    const one = sandbox({
      state: 'paused',
      checkpointHealth: { ...checkpointHealth, parts: ['memory'] },
      deletesAt: NOW + 7_200_000,
    });
    expect(titles({ sandboxes: [one] })).toEqual([
      'The checkpoint of web is damaged (memory)',
      'web will be deleted in 2\u00a0h',
    ]);
  });

  it('is a checkpoint that could not be read in time, which is not called damaged', () => {
    const checkpointHealth = { health: 'unknown', parts: ['files'], reason: null, verifiedAt: null } as const;
    const one = sandbox({ state: 'paused', checkpointHealth: { ...checkpointHealth, parts: ['files'] } });
    expect(titles({ sandboxes: [one] })).toEqual(['The checkpoint of web could not be checked']);
  });

  it('is a failed wake of today, once, with its message', () => {
    const event = (at: number) =>
      ({
        type: 'sandbox.resume_failed',
        sandboxId: 'sbx_1',
        at,
        data: { error: { message: 'Too slow.' } },
      }) as unknown as EventView;
    const matters = mattersOf(known({ events: [event(NOW - 1_000), event(NOW - 5_000)] }));
    expect(matters).toMatchObject([{ advice: 'Too slow.', sandboxId: 'sbx_1' }]);
    expect(titles({ events: [event(NOW - 90_000_000)] })).toEqual([]);
  });

  it('is a node that is away, with what it had', () => {
    const node = (name: string, state: string, running: number) =>
      ({ name, state, used: { running, unknown: 1 } }) as unknown as NodeView;
    const [matter, ...others] = mattersOf(known({ nodes: [node('a', 'alive', 3), node('b', 'away', 1)] }));
    expect(others).toEqual([]);
    expect(matter).toMatchObject({ weight: 'bad', title: 'The node b is away' });
    expect(matter?.advice).toMatch(/^2 sandboxes ran on it/);
  });

  it('is a disk that fills up', () => {
    const disk = { level: 'refusing', freeBytes: 5_000_000_000 } as Known['disk'];
    expect(titles({ disk })).toEqual(['The disk of the checkpoints is full: 5.0\u00a0GB free']);
  });
});
