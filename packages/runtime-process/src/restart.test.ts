import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { listedInstances, NO_SPEC, newInstance, unhurried } from '@torpor/engine/testing';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpService, pageOf } from '../testing/http-service.ts';
import { makeProcessWorld, type ProcessWorld, processesKnowing } from '../testing/process-world.ts';
import { processRuntime } from './open-process-runtime.ts';

let world: ProcessWorld;

beforeEach(async () => {
  world = await makeProcessWorld();
});
afterEach(() => world.dispose());

/** Another process that starts an instance, reports it, and then waits to be killed. */
async function otherServer(instance: ReturnType<typeof newInstance>): Promise<{ kill(): Promise<void> }> {
  const script = `
    import { processRuntime } from ${JSON.stringify(join(import.meta.dirname, 'open-process-runtime.ts'))};
    setInterval(() => {}, 1000);
    const runtime = await processRuntime(${JSON.stringify({
      dataDir: world.dataDir,
      instancesDir: world.instancesDir,
      agentDir: await agentBundle(),
    })});
    const spec = ${JSON.stringify({ ...NO_SPEC, services: [httpService()] })};
    const signal = new AbortController().signal;
    console.log('starting');
    await runtime.start(${JSON.stringify(instance)}, ${JSON.stringify(world.template)}, 'files', spec, signal);
    console.log('started');
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  for await (const text of child.stdout.setEncoding('utf8')) {
    said += text;
    if (said.includes('started')) break;
  }
  if (!said.includes('started')) throw new Error('The other server did not start the instance.');
  return {
    kill: async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

describe('a server that was killed', () => {
  it('leaves its sandboxes running, and the next server serves them', async () => {
    const instance = newInstance();
    await (await otherServer(instance)).kill();
    const later = await world.reopen();
    expect(await later.observe(instance, unhurried)).toEqual({ is: 'running' });
    expect((await pageOf(later, instance, 3000)).starts).toBe(1);
    expect(await world.program.write(instance, 'a', 'one')).toBe(true);
    await later.destroy(instance, unhurried);
    expect(await processesKnowing(world.home(instance))).toEqual([]);
  });

  it('leaves an unfinished instance that the next server lists and destroys, when killed during a start', async () => {
    const instance = newInstance();
    const directory = join(world.instancesDir, instance.sandboxId, '1');
    await mkdir(join(directory, 'home.unfinished'), { recursive: true });
    await writeFile(join(directory, 'home.unfinished/half'), 'half');
    const later = await world.reopen();
    expect(await listedInstances(later)).toEqual([instance]);
    expect(await later.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: false });
    await later.destroy(instance, unhurried);
    expect(await listedInstances(later)).toEqual([]);
  });

  it('leaves files that the next server removes, when killed during a removal', async () => {
    const left = join(world.instancesDir, '.removing/sbx_x.1.y');
    const deep = 'long-name/'.repeat(300);
    for (const part of ['one', 'two']) await mkdir(join(left, part, deep), { recursive: true });
    await rename(join(left, 'two'), join(left, 'one', deep, 'two'));
    await mkdir(join(left, 'closed'), { mode: 0o000 });
    await mkdir(join(world.instancesDir, newInstance().sandboxId));
    await world.reopen();
    expect((await readdir(world.instancesDir)).filter((name) => name !== '.program')).toEqual(['.removing']);
    expect(await readdir(join(world.instancesDir, '.removing'))).toEqual([]);
  });
});

describe('a data directory', () => {
  it('is refused when its path is too long for sockets, and the error says by how much', async () => {
    const long = join(world.instancesDir, 'x'.repeat(80));
    const opening = processRuntime({
      dataDir: world.dataDir,
      instancesDir: long,
      agentDir: await agentBundle(),
    });
    await expect(opening).rejects.toMatchObject({
      code: 'invalid_request',
      hint: expect.stringMatching(/\d+ characters shorter/),
    });
  });
});
