import { describe, expect, it } from 'vitest';
import { Mutex } from './mutex.ts';

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('Mutex', () => {
  it('runs work one at a time, in the order of the calls', async () => {
    const mutex = new Mutex();
    const steps: string[] = [];
    const work = (name: string) => async () => {
      steps.push(`${name} begins`);
      await tick();
      steps.push(`${name} ends`);
      return name;
    };
    expect(await Promise.all([mutex.run(work('a')), mutex.run(work('b'))])).toEqual(['a', 'b']);
    expect(steps).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('goes on after work that failed, and fails only its caller', async () => {
    const mutex = new Mutex();
    const failing = mutex.run(() => Promise.reject(new Error('broken')));
    const next = mutex.run(() => 'next');
    await expect(failing).rejects.toThrow('broken');
    expect(await next).toBe('next');
  });
});
