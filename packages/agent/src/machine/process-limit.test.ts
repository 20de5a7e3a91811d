import { afterEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';
import { ProcessLimit } from './process-limit.ts';

describe('the limit on processes', () => {
  let agent: RunningAgent;
  afterEach(() => agent?.stop());

  const limit = async () => {
    const process = shell(`awk '/^Max processes/ { print $3 }' /proc/self/limits`);
    return (await transcribe(agent.client.process.start({ process }))).stdout.trim();
  };

  it('applies to every started process until it is changed', async () => {
    agent = await runAgent({ args: ['--own-machine'] });
    for (const maxProcesses of [30_000, 20_000, 20_000, 31_000]) {
      expect(await agent.client.init({ maxProcesses })).toMatchObject({ processesLimited: true });
      expect(await limit()).toBe(String(maxProcesses));
    }
    // An absent limit changes nothing.
    await agent.client.init({});
    expect(await limit()).toBe('31000');
  });

  it('starts no program where there is no prlimit, and is set once there is one', async () => {
    const started: (readonly string[])[] = [];
    let exists = false;
    const limit = new ProcessLimit({
      exists: () => exists,
      run: async (args) => started.push(args) > 0,
    });
    for (let starts = 0; starts < 3; starts++) expect(await limit.set(100)).toBe(false);
    expect(started).toEqual([]);
    exists = true;
    for (let starts = 0; starts < 3; starts++) expect(await limit.set(100)).toBe(true);
    expect(started).toEqual([['--pid', String(process.pid), '--nproc=100:']]);
  });

  it('is not changed on a shared machine', async () => {
    agent = await runAgent();
    const before = await limit();
    expect(await agent.client.init({ maxProcesses: 20_000 })).toMatchObject({ processesLimited: false });
    expect(await limit()).toBe(before);
  });
});
