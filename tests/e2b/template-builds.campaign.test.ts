import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, Template } from 'e2b';
import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';

const noGvisor = await whyNoGvisor();

describe.skipIf(noGvisor !== null)('a template build whose server is killed', () => {
  it('is run again behind its last finished step, and ends', async () => {
    let world: E2bServer = await e2bServer('http', 'gvisor');
    try {
      const template = Template().fromTemplate('base').runCmd('date +%s%N > /tmp/when').runCmd('sleep 10');
      let options = optionsOf(world);
      const begun = await Template.buildInBackground(template, 'killed', options);
      const state = async () => {
        const { status, logEntries } = await Template.getBuildStatus(begun, options);
        return { status, messages: logEntries.map(({ message }) => message) };
      };
      while (!(await state()).messages.includes('[2/2] RUN sleep 10')) await sleep(50);
      world = await world.restart();
      options = optionsOf(world);
      while ((await state()).status === 'building') await sleep(200);
      expect(await state()).toMatchObject({
        status: 'ready',
        messages: expect.arrayContaining([
          expect.stringContaining('The server stopped'),
          'CACHED [1/2] RUN date +%s%N > /tmp/when',
        ]),
      });
      expect(await Sandbox.list(options).nextItems()).toEqual([]);
      const sandbox = await Sandbox.create('killed', options);
      expect((await sandbox.commands.run('cat /tmp/when')).stdout).toMatch(/^\d+\n$/);
      await sandbox.kill();
    } finally {
      await world.dispose();
    }
  });
});
