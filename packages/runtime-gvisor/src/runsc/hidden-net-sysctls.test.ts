import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeRunscWorld, type RunscWorld, usableRunsc } from '../../testing/runsc-world.ts';
import type { Container } from './runsc-container.ts';

const run = promisify(execFile);
const program = await usableRunsc();

/** Two network namespaces connected by a veth pair, so that no address of the host is touched. */
describe.skipIf(program === undefined)('a container in a network namespace', () => {
  const name = `tprs-${randomBytes(3).toString('hex')}`;
  const [inside, outside] = [`${name}-in`, `${name}-out`];
  const netns = `/run/netns/${inside}`;
  const ip = (namespace: string, ...args: string[]) => run('ip', ['-n', namespace, ...args]);
  const COUNT = `
    const life = require('node:crypto').randomUUID();
    let count = 0;
    require('node:http').createServer((_, answer) => answer.end(JSON.stringify({ life, count: ++count }))).listen(80);
  `;
  let world: RunscWorld;

  beforeEach(async () => {
    for (const namespace of [inside, outside]) await run('ip', ['netns', 'add', namespace]);
    await ip(inside, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', outside);
    await ip(outside, 'addr', 'add', '10.0.0.1/30', 'dev', 'eth0');
    await ip(outside, 'link', 'set', 'eth0', 'up');
    await ip(inside, 'link', 'set', 'eth0', 'up');
    world = await makeRunscWorld(program ?? '', { network: 'sandbox' });
  });

  afterEach(async () => {
    await world.dispose();
    for (const namespace of [inside, outside]) await run('ip', ['netns', 'delete', namespace]);
  });

  /** Every start of runsc removes the address from the namespace. */
  const giveAddress = () => ip(inside, 'addr', 'replace', '10.0.0.2/30', 'dev', 'eth0');
  const server = () => world.counter({ netns, args: ['/node/node', '-e', COUNT] });

  async function ask(): Promise<{ readonly life: string; readonly count: number }> {
    const dial = `
      const ask = () => fetch('http://10.0.0.2/', { signal: AbortSignal.timeout(15000) })
        .then((answer) => answer.text())
        .then(console.log, (failed) => failed.cause?.code === 'ECONNREFUSED' ? setTimeout(ask, 20) : process.exit(1));
      ask();`;
    const { stdout } = await run('nsenter', [`--net=/run/netns/${outside}`, process.execPath, '-e', dial]);
    return JSON.parse(stdout);
  }

  async function saved(container: Container): Promise<string> {
    const image = join(world.top, 'image');
    await world.runsc.freeze(container, unhurried);
    await world.runsc.writeImage(container, image, unhurried);
    await world.runsc.killProcesses(container, unhurried);
    return image;
  }

  it('has its address, whether it is run in one step or created and started', async () => {
    const first = await server();
    await giveAddress();
    await world.runsc.run(first, unhurried);
    expect((await ask()).count).toBe(1);
    await world.runsc.killProcesses(first, unhurried);

    const second = await server();
    await world.runsc.create(second, unhurried);
    await giveAddress();
    await world.runsc.start(second, unhurried);
    expect((await ask()).count).toBe(1);
  });

  it('is restored with its memory, whether it was created before or not', async () => {
    const first = await server();
    await giveAddress();
    await world.runsc.run(first, unhurried);
    const { life } = await ask();
    const image = await saved(first);

    const created = await server();
    await world.runsc.create(created, unhurried);
    await giveAddress();
    await world.runsc.restore(created, image, unhurried);
    expect(await ask()).toEqual({ life, count: 2 });
    await world.runsc.killProcesses(created, unhurried);

    const fresh = await server();
    await giveAddress();
    await world.runsc.restore(fresh, image, unhurried);
    expect(await ask()).toEqual({ life, count: 2 });
  });

  it('leaves the sysctls of the host visible to other processes', async () => {
    const container = await server();
    await giveAddress();
    await world.runsc.run(container, unhurried);

    expect(Number(await readFile('/proc/sys/net/core/rmem_default', 'utf8'))).toBeGreaterThan(0);
    const { stdout } = await run('nsenter', [`--net=${netns}`, 'ls', '/proc/sys/net/core']);
    expect(stdout).not.toBe('');
  });
});
