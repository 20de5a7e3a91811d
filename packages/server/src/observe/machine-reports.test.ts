import type { Database } from '@torpor/engine';
import { systemClock } from '@torpor/engine';
import type { MachineCheck } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { type HostInspection, MachineReports } from './machine-reports.ts';

const old: MachineCheck = { name: 'runsc', ok: true, detail: '28 months old', fix: 'use a newer runsc' };
const fine: MachineCheck = { name: 'tini', ok: true, detail: '/usr/bin/tini', fix: null };

function reportsOf(host: HostInspection | undefined, query = () => Promise.resolve([])) {
  return new MachineReports({
    clock: systemClock,
    stopping: new AbortController().signal,
    db: { query } as unknown as Database,
    engine: { disk: () => undefined },
    ...(host === undefined ? {} : { host }),
  });
}

describe('reports about the machine', () => {
  it('have the memory of the machine, and only findings with something to do', async () => {
    let asked = 0;
    const quick = async () => {
      asked++;
      return [old, fine];
    };
    const reports = reportsOf({ quick, all: quick });
    const machine = await reports.machine();
    expect(machine.findings).toEqual([old]);
    expect(machine.memoryTotalBytes).toBeGreaterThan(machine.memoryAvailableBytes);
    expect(machine.memoryAvailableBytes).toBeGreaterThan(0);
    await reports.machine();
    expect(asked).toBe(1);
  });

  it('show no finding when a quick check cannot run', async () => {
    const broken = () => Promise.reject(new Error('no such program'));
    expect((await reportsOf({ quick: broken, all: broken }).machine()).findings).toEqual([]);
  });

  it('share one run of the doctor between all who ask at once', async () => {
    let runs = 0;
    const all = async () => {
      runs++;
      return [fine];
    };
    const reports = reportsOf({ quick: all, all });
    const [first, second] = await Promise.all([reports.doctor(), reports.doctor()]);
    expect([runs, first]).toEqual([1, second]);
    expect(first.checks.map(({ name, ok }) => [name, ok])).toEqual([
      ['database', true],
      ['disk of the checkpoints', true],
      ['tini', true],
    ]);
    await reports.doctor();
    expect(runs).toBe(2);
  });

  it('say that the database does not answer', async () => {
    const { checks } = await reportsOf(undefined, () => Promise.reject(new Error('gone'))).doctor();
    expect(checks[0]).toMatchObject({ name: 'database', ok: false, fix: expect.any(String) });
  });
});
