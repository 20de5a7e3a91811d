import { afterEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

describe('the limit on processes', () => {
  let agent: RunningAgent;
  afterEach(() => agent.stop());

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

  it('is not changed on a shared machine', async () => {
    agent = await runAgent();
    const before = await limit();
    expect(await agent.client.init({ maxProcesses: 20_000 })).toMatchObject({ processesLimited: false });
    expect(await limit()).toBe(before);
  });
});
