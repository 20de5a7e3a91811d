import { describe, expect, it, vi } from 'vitest';
import type { ExecEvent } from '../exec.ts';
import { Execution } from './execution.ts';

const REPLY = {
  exitCode: 3,
  signal: null,
  stdout: 'out',
  stderr: '',
  truncated: false,
  durationMs: 5,
  autoResumed: false,
};
const EVENTS: ExecEvent[] = [
  { type: 'start', pid: 7, autoResumed: false },
  { type: 'end', exitCode: 0, signal: null, durationMs: 1 },
];

function made(whole = async () => REPLY) {
  const forms = {
    whole: vi.fn(whole),
    stream: vi.fn(async function* () {
      yield* EVENTS;
    }),
  };
  return { ...forms, execution: new Execution(forms) };
}

const aMoment = () => new Promise((resolve) => setImmediate(resolve));

describe('an execution', () => {
  it('is awaited for its result, and sent once however often it is awaited', async () => {
    const { execution, whole, stream } = made();
    expect(await execution).toBe(REPLY);
    expect(await execution.then(({ exitCode }) => exitCode)).toBe(3);
    expect(await Promise.all([execution, execution.finally(() => {})])).toEqual([REPLY, REPLY]);
    expect(whole).toHaveBeenCalledTimes(1);
    expect(stream).not.toHaveBeenCalled();
  });

  it('is iterated for its output, and then not sent as a plain request', async () => {
    const { execution, whole } = made();
    const events: ExecEvent[] = [];
    for await (const event of execution) events.push(event);
    expect(events).toEqual(EVENTS);
    await aMoment();
    expect(whole).not.toHaveBeenCalled();
  });

  it('runs even if it is not awaited', async () => {
    const { whole } = made();
    await aMoment();
    expect(whole).toHaveBeenCalledTimes(1);
  });

  it('fails when it is awaited and iterated', async () => {
    const { execution } = made();
    await execution;
    expect(() => execution[Symbol.asyncIterator]()).toThrow('cannot be iterated any more');
    const other = made().execution;
    for await (const _ of other) break;
    await expect(other).rejects.toThrow('cannot be awaited any more');
    expect(() => other[Symbol.asyncIterator]()).toThrow('cannot be iterated any more');
  });

  it('fails like a promise', async () => {
    const broken = async () => Promise.reject(new Error('broken'));
    await expect(made(broken).execution).rejects.toThrow('broken');
    expect(await made(broken).execution.catch(() => 'caught')).toBe('caught');
  });
});
