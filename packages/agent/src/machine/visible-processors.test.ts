import { availableParallelism } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';
import { cpuinfoOf } from './visible-processors.ts';

describe('the number of processors that programs see', () => {
  let agent: RunningAgent;
  afterEach(() => agent.stop());

  const nproc = async () =>
    Number((await transcribe(agent.client.process.start({ process: shell('nproc') }))).stdout);

  it('applies to every started process until it is changed', async () => {
    agent = await runAgent({ args: ['--own-machine'] });
    const all = availableParallelism();
    for (const processors of [1, all, all, 1]) {
      expect(await agent.client.init({ processors })).toMatchObject({ processorsSet: true });
      expect(await nproc()).toBe(processors);
    }
    // An absent number changes nothing.
    await agent.client.init({});
    expect(await nproc()).toBe(1);
  });

  it('is at most the number of the machine', async () => {
    agent = await runAgent({ args: ['--own-machine'] });
    expect(await agent.client.init({ processors: 100_000 })).toMatchObject({ processorsSet: false });
    expect(await nproc()).toBe(availableParallelism());
  });

  it('is not changed on a shared machine', async () => {
    agent = await runAgent();
    expect(await agent.client.init({ processors: 1 })).toMatchObject({ processorsSet: false });
    expect(await nproc()).toBe(availableParallelism());
  });
});

it('a shortened /proc/cpuinfo has the first processors, which name their number', () => {
  const one = (number: number, of: number) =>
    `processor\t: ${number}\nsiblings\t: ${of}\ncore id\t\t: ${number}\ncpu cores\t: ${of}\nflags\t\t: fpu\n\n`;
  const machine = [0, 1, 2, 3].map((number) => one(number, 4)).join('');
  expect(cpuinfoOf(machine, 2)).toBe(one(0, 2) + one(1, 2));
  expect(cpuinfoOf(machine, 4)).toBe(machine);
});
