import { type AddressInfo, createServer } from 'node:net';
import type { StartSpec } from '@torpor/engine';
import {
  failureOf,
  NO_SPEC,
  newInstance,
  nextOf,
  paused,
  startFrom,
  unhurried,
} from '@torpor/engine/testing';
import { linuxProcesses } from '@torpor/host';
import type { Service } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpService, pageOf } from '../testing/http-service.ts';
import { makeProcessWorld, type ProcessWorld } from '../testing/process-world.ts';

let world: ProcessWorld;

beforeEach(async () => {
  world = await makeProcessWorld();
});
afterEach(() => world.dispose());

describe('a service', () => {
  it('is restarted by a resume on the same declared port, and the old process is gone (R28, R31, R98)', async () => {
    const spec = withServices(httpService({ ready: { path: '/' } }));
    const instance = newInstance();
    expect(await startFrom(world, instance, world.template, 'files', spec)).toEqual({
      mode: 'files',
      lost: [],
    });
    const before = await pageOf(world.runtime, instance, 3000);
    const checkpoint = await paused(world, instance);
    expect(await isAlive(before.pid)).toBe(false);

    const next = nextOf(instance);
    const result = await startFrom(world, next, checkpoint, 'files', spec);

    expect(result).toEqual({ mode: 'files', lost: ['processes'] });
    const after = await pageOf(world.runtime, next, 3000);
    expect(after).toMatchObject({ starts: 2 });
    expect(after.pid).not.toBe(before.pid);
    const tags = (await (await world.agent(next)).process.list({})).processes.map(({ tag }) => tag);
    expect(tags).toEqual(['service:web']);
  });

  it('has its declared port to itself although another sandbox declares the same port', async () => {
    const spec = withServices(httpService());
    const [left, right] = [await world.started(spec), await world.started(spec)];
    const pages = [await pageOf(world.runtime, left, 3000), await pageOf(world.runtime, right, 3000)];
    expect(pages[0]?.pid).not.toBe(pages[1]?.pid);
    await world.runtime.destroy(left, unhurried);
    expect(await world.runtime.dial(left, 3000, unhurried)).toBeNull();
    expect(await pageOf(world.runtime, right, 3000)).toEqual(pages[1]);
  });

  it('starts when the service before it is ready, with its own variables and those of the sandbox', async () => {
    const second: Service = {
      name: 'second',
      command: 'echo "$OURS $ITS port=$PORT $(wc -l < starts) $(pwd)" > seen; exec sleep 1000',
      env: { ITS: 'own' },
    };
    const instance = await world.started({ ...withServices(httpService(), second), env: { OURS: 'all' } });
    await expect
      .poll(() => world.program.read(instance, 'seen'))
      .toBe(`all own port= 1 ${world.home(instance)}\n`);
  });

  it('fails the start when it ends before it is ready; the error has its name and last output', async () => {
    const broken: Service = { name: 'broken', command: 'echo cannot find it >&2; exit 3', port: 4000 };
    const instance = newInstance();
    const failure = await failureOf(
      startFrom(world, instance, world.template, 'files', withServices(broken)),
    );
    expect(failure).toMatchObject({
      code: 'conflict',
      details: { service: 'broken', output: 'cannot find it\n' },
    });
    expect(failure.message).toContain('"broken" ended (exit status 3)');
    expect(failure.message).toContain('cannot find it');
  });

  it('fails the start with a timeout when it is not ready in time', async () => {
    const silent: Service = { name: 'silent', command: 'echo waiting; exec sleep 1000', port: 4000 };
    const unwell = httpService({ name: 'unwell', ready: { path: '/broken', timeoutSeconds: 1 } });
    for (const service of [{ ...silent, ready: { timeoutSeconds: 1 } }, unwell]) {
      const failure = await failureOf(
        startFrom(world, newInstance(), world.template, 'files', withServices(service)),
      );
      expect(failure).toMatchObject({ code: 'timeout', details: { service: service.name } });
    }
  });
});

describe('dial', () => {
  it('finds an undeclared port while a process listens on it', async () => {
    const instance = await world.started();
    const other = await world.started();
    const port = await freePort();
    await world.program.listen?.(instance, port);
    expect(await world.runtime.dial(instance, port, unhurried)).toEqual({ host: '127.0.0.1', port });
    expect(await world.runtime.dial(other, port, unhurried)).toBeNull();
    await world.kill(instance);
    expect(await world.runtime.dial(instance, port, unhurried)).toBeNull();
  });

  it('never leads to a server of the host, not even on a declared port (R31)', async () => {
    const host = createServer();
    await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
    const { port } = host.address() as AddressInfo;
    try {
      const instance = await world.started(withServices(httpService({ port })));
      const address = await world.runtime.dial(instance, port, unhurried);
      expect(address).not.toBeNull();
      expect(address).not.toEqual({ host: '127.0.0.1', port });
      expect(await world.runtime.dial(await world.started(), port, unhurried)).toBeNull();
    } finally {
      await new Promise((resolve) => host.close(resolve));
    }
  });
});

function withServices(...services: Service[]): StartSpec {
  return { ...NO_SPEC, services };
}

async function isAlive(pid: number): Promise<boolean> {
  return ((await linuxProcesses.read(pid))?.state ?? 'dead') !== 'dead';
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
