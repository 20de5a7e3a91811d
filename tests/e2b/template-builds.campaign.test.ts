import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, Template } from 'e2b';
import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';

const noGvisor = await whyNoGvisor();

describe.skipIf(noGvisor !== null)('a template build whose server is killed', () => {
  it('ends as an error, leaves no sandbox, and the next build goes on behind its last finished step', async () => {
    let world: E2bServer = await e2bServer('http', 'gvisor');
    try {
      const before = () => Template().fromTemplate('base').runCmd('date +%s%N > /tmp/when');
      let options = optionsOf(world);
      const begun = await Template.buildInBackground(before().runCmd('sleep 1000'), 'killed', options);
      const messages = async () =>
        (await Template.getBuildStatus(begun, options)).logEntries.map(({ message }) => message);
      while (!(await messages()).includes('[2/2] RUN sleep 1000')) await sleep(50);
      world = await world.restart();
      options = optionsOf(world);
      const { status, reason } = await Template.getBuildStatus(begun, options);
      expect([status, reason?.message]).toEqual(['error', expect.stringContaining('The server stopped')]);
      expect(await Sandbox.list(options).nextItems()).toEqual([]);
      expect(await Template.exists('killed', options)).toBe(false);

      const lines: string[] = [];
      const onBuildLogs = ({ message }: { message: string }) => void lines.push(message);
      await Template.build(before().runCmd('true'), 'killed', { ...options, onBuildLogs });
      expect(lines).toContain('CACHED [1/2] RUN date +%s%N > /tmp/when');
    } finally {
      await world.dispose();
    }
  });
});
