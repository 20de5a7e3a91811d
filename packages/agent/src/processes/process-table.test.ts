import { describe, expect, it, vi } from 'vitest';
import { type ExitStatus, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import { ProcessTable, type TableOptions } from './process-table.ts';
import type { StartedProcess } from './started-process.ts';

const config = { cmd: 'x', args: [], envs: {} };

function started(pid: number): StartedProcess & { end(status: ExitStatus): void } {
  const { promise, resolve } = Promise.withResolvers<ExitStatus>();
  const unused = () => {
    throw new Error('not in this test');
  };
  return {
    pid,
    output: new OutputRing(100, { pause() {}, resume() {} }),
    ended: promise,
    end: resolve,
    write: unused,
    closeStdin: unused,
    resize: unused,
  };
}

function makeTable(options: Partial<TableOptions> = {}) {
  const clock = { now: 0 };
  const kill = vi.fn();
  return { clock, kill, table: new ProcessTable({ now: () => clock.now, kill, ...options }) };
}

async function endAll(processes: ReturnType<typeof started>[]): Promise<void> {
  for (const process of processes) process.end(exitedWith(0));
  await Promise.resolve();
}

describe('the process table', () => {
  it('lists running processes, and finds ended ones', async () => {
    const { table } = makeTable();
    const process = started(7);
    table.add(process, config, { tag: 'build' });
    expect(table.list()).toHaveLength(1);
    await endAll([process]);
    expect(table.list()).toEqual([]);
    expect(table.find({ tag: 'build' }).exit).toEqual(exitedWith(0));
    expect(() => table.findRunning({ pid: 7 })).toThrow(expect.objectContaining({ code: 'not_found' }));
  });

  it('finds the newest process by a reused tag', async () => {
    const { table } = makeTable();
    const [first, second] = [started(1), started(2)];
    table.add(first, config, { tag: 't' });
    table.add(second, config, { tag: 't' });
    expect(table.find({ tag: 't' }).started.pid).toBe(2);
    await endAll([second]);
    expect(table.find({ tag: 't' }).started.pid).toBe(1);
  });

  it('finds the running process by a reused pid', async () => {
    const { table } = makeTable();
    const old = started(5);
    table.add(old, config);
    await endAll([old]);
    table.add(started(5), config);
    expect(table.find({ pid: 5 }).exit).toBeUndefined();
  });

  it('keeps ended processes for an hour', async () => {
    const { table, clock } = makeTable();
    const [first, second, third] = [started(1), started(2), started(3)];
    for (const process of [first, second, third]) table.add(process, config);
    await endAll([first]);
    clock.now = 3_600_000;
    await endAll([second]);
    expect(table.find({ pid: 1 }).exit).toBeDefined();
    clock.now += 1;
    await endAll([third]);
    expect(() => table.find({ pid: 1 })).toThrow('no process with pid 1');
    expect(table.find({ pid: 2 }).exit).toBeDefined();
  });

  it('limits the number of kept processes', async () => {
    const { table } = makeTable({ keptExits: 2 });
    const processes = [started(1), started(2), started(3)];
    for (const process of processes) table.add(process, config);
    await endAll(processes);
    expect(() => table.find({ pid: 1 })).toThrow();
    expect(table.find({ pid: 3 }).exit).toBeDefined();
  });

  it('keeps the last end of a service for good', async () => {
    const { table, clock } = makeTable({ keptExits: 1 });
    const [early, last, other, another] = [started(1), started(2), started(3), started(4)];
    for (const process of [early, last]) table.add(process, config, { tag: 'service:web' });
    for (const process of [other, another]) table.add(process, config, { tag: 'other' });
    await endAll([early, last]);
    clock.now = 3_600_001;
    await endAll([other, another]);
    expect(table.find({ tag: 'service:web' }).started.pid).toBe(2);
    expect(() => table.find({ pid: 1 })).toThrow('no process with pid 1');
    expect(() => table.find({ pid: 3 })).toThrow('no process with pid 3');
  });

  it('limits the number of services whose end it keeps', async () => {
    const { table } = makeTable({ keptExits: 1 });
    const processes = Array.from({ length: 40 }, (_, i) => started(i + 1));
    for (const process of processes) table.add(process, config, { tag: `service:${process.pid}` });
    await endAll(processes);
    expect(table.succeededServices().map(({ started }) => started.pid)).toEqual(
      Array.from({ length: 32 }, (_, i) => i + 9),
    );
  });

  it('lists services that have ended by themselves with exit code 0', async () => {
    const { table } = makeTable();
    const succeeded = () => table.succeededServices().map(({ tag }) => tag);
    const [done, failed, signalled, command] = [started(1), started(2), started(3), started(4)];
    table.add(done, config, { tag: 'service:done' });
    table.add(failed, config, { tag: 'service:failed' });
    table.signal(table.add(signalled, config, { tag: 'service:signalled' }), 'SIGTERM');
    table.add(command, config, { tag: 'command' });
    expect(succeeded()).toEqual([]);
    failed.end(exitedWith(1));
    await endAll([done, signalled, command]);
    expect(succeeded()).toEqual(['service:done']);

    const again = started(5);
    table.add(again, config, { tag: 'service:done' });
    expect(succeeded()).toEqual([]);
    again.end(exitedWith(1));
    await Promise.resolve();
    expect(succeeded()).toEqual([]);
  });

  it('drops the output of old processes before the processes', async () => {
    const { table } = makeTable({ keptOutputBytes: 100 });
    const processes = [started(1), started(2)];
    for (const process of processes) {
      table.add(process, config);
      process.output.append('stdout', Buffer.alloc(80));
    }
    await endAll(processes);
    expect(table.find({ pid: 1 }).started.output.keptBytes).toBe(0);
    expect(table.find({ pid: 2 }).started.output.keptBytes).toBe(80);
    expect(table.find({ pid: 1 }).exit).toBeDefined();
  });

  it('kills the process group at the timeout, and not before', async () => {
    vi.useFakeTimers();
    try {
      const { table, kill } = makeTable();
      const [slow, quick] = [started(8), started(9)];
      table.add(slow, config, { timeoutMs: 1000 });
      table.add(quick, config, { timeoutMs: 1000 });
      await endAll([quick]);
      vi.advanceTimersByTime(999);
      expect(kill).not.toHaveBeenCalled();
      vi.advanceTimersByTime(1);
      expect(kill.mock.calls).toEqual([[-8, 'SIGKILL']]);
    } finally {
      vi.useRealTimers();
    }
  });
});
