import { mkdtemp, rename, rm, symlink, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { makeWorld, type World } from '@torpor/engine/testing';
import { connectAgent, serviceTag } from '@torpor/envd';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Fault, type FaultProvider, faultProvider } from '../testing/fault-provider.ts';
import { type E2bRuntimeOptions, e2bRuntime, type OpenedE2bRuntime } from './open-e2b-runtime.ts';

const caller = { org: 'org' };

describe('the e2b runtime with a provider that misbehaves', () => {
  let provider: FaultProvider;
  let dataDir: string;
  let runtime: OpenedE2bRuntime;
  let world: World;
  beforeAll(async () => {
    provider = await faultProvider();
    dataDir = await mkdtemp(join(tmpdir(), 'torpor-e2b-test-'));
  });
  afterAll(async () => {
    await provider.dispose();
    await rm(dataDir, { recursive: true });
  });
  beforeEach(async () => {
    runtime = await opened();
    world = await makeWorld('sqlite', {
      settings: { callMs: 2_500, observeMs: 1_500, operationMs: 3_000, serverLeaseMs: 1_000 },
      runtimes: () => [runtime],
      parts: () => ({ clock: systemClock }),
    });
  });
  afterEach(async () => {
    provider.fault = () => undefined;
    for (const { id } of (await world.engine.list({ org: 'org' }, '', 100)).items) {
      await world.engine.kill(caller, id).catch(() => {});
    }
    await world.dispose();
    await runtime.close();
    provider.sandboxes.clear();
    provider.calls.length = 0;
  });

  const opened = (options: Partial<E2bRuntimeOptions> = {}) =>
    e2bRuntime({
      apiKey: 'e2b_00',
      apiUrl: provider.url,
      sandboxUrl: provider.url,
      dataDir,
      clock: systemClock,
      report: () => {},
      requestMs: 1_500,
      ...options,
    });
  const create = async () => (await world.engine.create(caller, { runtime: 'e2b' })).sandbox;
  const afterARound = (id: SandboxId) => async () => {
    await world.engine.reconcile();
    return (await world.engine.get('org', id)).state;
  };
  const only = () => [...provider.sandboxes.values()][0];

  it('finds out by a probe what the provider keeps', async () => {
    expect(runtime.capabilities()).toMatchObject({ pause: 'memory', replayable: false, fork: false });
    expect(provider.sandboxes.size).toBe(0);
  });

  it('resumes the same sandbox of the provider and sets the lifetime again after the connect (R29)', async () => {
    const { id } = await create();
    const before = only()?.id;
    const { checkpoint } = await world.engine.pause(caller, id);
    expect(checkpoint).toMatchObject({
      external: true,
      replayable: false,
      location: `e2b:sandbox/${before}`,
    });
    expect(only()).toMatchObject({ state: 'paused' });
    const { source, lost } = await world.engine.resume(caller, id);
    expect({ kind: source.kind, lost }).toEqual({ kind: 'memory', lost: [] });
    expect(only()).toMatchObject({ id: before, state: 'running', lifetime: 3_600 });
    const connect = provider.calls.lastIndexOf('POST /sandboxes/:id/connect');
    expect(provider.calls[connect + 1]).toBe('POST /sandboxes/:id/timeout');
  });

  it('keeps the sandbox running when the provider answers a pause but does not show it', async () => {
    const { id } = await create();
    provider.fault = (call) => (call.endsWith('/pause') ? 'lie' : undefined);
    await expect(world.engine.pause(caller, id)).rejects.toMatchObject({ retryable: true });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'running', checkpointId: null });
  });

  const connects = (fault: Fault) => (call: string) => (call.endsWith('/connect') ? fault : undefined);

  it.each<[string, Fault]>([
    ['answers 502', { status: 502, body: '<html>Bad Gateway</html>' }],
    ['hangs', 'hang'],
  ])('connects once and leaves the sandbox paused when a connect %s (R77)', async (_, fault) => {
    const { id } = await create();
    await world.engine.pause(caller, id);
    provider.calls.length = 0;
    provider.fault = connects(fault);
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ retryable: true });
    expect(provider.calls.filter((call) => call.endsWith('/connect'))).toHaveLength(1);
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'paused', operationId: null });
    provider.fault = () => undefined;
    expect((await world.engine.resume(caller, id)).sandbox.state).toBe('running');
    expect(provider.sandboxes.size).toBe(1);
    await world.engine.kill(caller, id);
    expect(provider.sandboxes.size).toBe(0);
  });

  it.each<Fault>(['502 after', 'hang after'])(
    'uses the sandbox that a failed connect resumed (%s)',
    async (fault) => {
      const { id } = await create();
      await world.engine.pause(caller, id);
      let lost = 1;
      provider.fault = (call) => (call.endsWith('/connect') && lost-- > 0 ? fault : undefined);
      const { sandbox, source } = await world.engine.resume(caller, id);
      expect({ state: sandbox.state, kind: source.kind }).toEqual({ state: 'running', kind: 'memory' });
      const { address } = await runtime.agent({ sandboxId: id, generation: 2 }, AbortSignal.timeout(5_000));
      expect(address).toHaveProperty('socketPath');
      await world.engine.kill(caller, id);
      expect(provider.sandboxes.size).toBe(0);
    },
  );

  it('uses the sandbox that a failed connect resumed, also when no later connect answers', async () => {
    const { id } = await create();
    await world.engine.pause(caller, id);
    provider.fault = connects('502 after');
    expect((await world.engine.resume(caller, id)).sandbox.state).toBe('running');
    provider.fault = () => undefined;
    await runtime.agent({ sandboxId: id, generation: 2 }, AbortSignal.timeout(5_000));
    await world.engine.kill(caller, id);
    expect(provider.sandboxes.size).toBe(0);
  });

  it('leaves the sandbox to the reconciler when the provider does not tell the result of a connect', async () => {
    const { id } = await create();
    await world.engine.pause(caller, id);
    const sandbox = only();
    let asked = false;
    // The inspection before the start is answered.
    provider.fault = (call) => {
      asked ||= call.endsWith('/connect');
      return asked ? { status: 502 } : undefined;
    };
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'timeout' });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'resuming' });
    provider.fault = () => undefined;
    await expect.poll(afterARound(id), { timeout: 20_000, interval: 500 }).toBe('running');
    expect([...provider.sandboxes.values()]).toEqual([sandbox]);
  });

  it('reports a sandbox as unknown, not gone, while the provider does not answer', async () => {
    const { id } = await create();
    provider.fault = () => ({ status: 502 });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'unknown' });
    await world.engine.reconcile();
    provider.fault = () => undefined;
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
  });

  it('reports a sandbox as lost only when the provider has lost it', async () => {
    const { id } = await create();
    await world.engine.pause(caller, id);
    provider.sandboxes.clear();
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'lost' });
  });

  it('finds and resumes a sandbox that the provider paused by itself', async () => {
    const { id } = await create();
    const sandbox = only();
    if (sandbox !== undefined) sandbox.state = 'paused';
    await world.engine.reconcile();
    expect(await world.engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
    });
    expect((await world.engine.resume(caller, id)).sandbox.state).toBe('running');
    expect(provider.sandboxes.size).toBe(1);
  });

  it('does not take the output of a service for an error of the provider (R35)', async () => {
    const failing = { name: 'app', command: 'serve-nothing', port: 45_678, ready: { timeoutSeconds: 5 } };
    const error = await world.engine
      .create(caller, { runtime: 'e2b', services: [failing] })
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'conflict' });
    expect(String((error as Error).message)).toContain('not found');
    expect(provider.sandboxes.size).toBe(0);
  });

  it('does not start a service without a port again that was restored with the memory', async () => {
    const services = [{ name: 'worker', command: 'exec sleep 60' }];
    const { id } = (await world.engine.create(caller, { runtime: 'e2b', services })).sandbox;
    await world.engine.pause(caller, id);
    await world.engine.resume(caller, id);
    const signal = AbortSignal.timeout(5_000);
    const { address, token } = await runtime.agent({ sandboxId: id, generation: 2 }, signal);
    if (!('socketPath' in address)) throw new Error('The agent should be behind a socket.');
    const agent = connectAgent({ socketPath: address.socketPath, accessToken: token });
    const { processes } = await agent.process.list({}, { signal });
    agent.close();
    expect(processes.filter(({ tag }) => tag === serviceTag('worker'))).toHaveLength(1);
  });

  it.each(['checkpoints', 'instances'])(
    'kills no sandbox while its records of %s cannot be read',
    async (records) => {
      const { id } = await create();
      await world.engine.pause(caller, id);
      const { id: other } = await create();
      const directory = join(dataDir, 'e2b', records);
      await rename(directory, `${directory}.away`);
      // A loop of symbolic links cannot be read by any user, root included.
      await symlink(directory, directory);
      const signal = AbortSignal.timeout(5_000);
      await expect(runtime.destroy({ sandboxId: id, generation: 1 }, signal)).rejects.toThrow();
      await expect(async () => {
        for await (const _ of runtime.list(signal)) void _;
      }).rejects.toThrow();
      await unlink(directory);
      await rename(`${directory}.away`, directory);
      expect(provider.sandboxes.size).toBe(2);
      expect((await world.engine.resume(caller, id)).sandbox.state).toBe('running');
      expect(await world.engine.get('org', other)).toMatchObject({ evidence: 'running' });
    },
  );

  it('keeps renewing lifetimes after the records could not be read and after one renewal failed', async () => {
    const reports: string[] = [];
    const renewing = await opened({ lifetimeMs: 3_000, report: (what) => reports.push(what) });
    const [first, second] = [await create(), await create()];
    const instances = join(dataDir, 'e2b', 'instances');
    await rename(instances, `${instances}.away`);
    await symlink(instances, instances);
    await expect.poll(() => reports, { timeout: 10_000 }).toContain('lifetimes could not be renewed');
    await unlink(instances);
    await rename(`${instances}.away`, instances);
    let failures = 1;
    provider.fault = (call) => (call.endsWith('/timeout') && failures-- > 0 ? { status: 502 } : undefined);
    await expect.poll(() => reports, { timeout: 10_000 }).toContain('a lifetime could not be renewed');
    const lifetimes = () => [...provider.sandboxes.values()].map(({ lifetime }) => lifetime);
    await expect.poll(lifetimes, { timeout: 10_000 }).toEqual([3, 3]);
    await renewing.close();
    for (const { id } of [first, second]) await world.engine.kill(caller, id);
  });

  it('finds a sandbox after a restart of the server, and leaves nothing after a kill', async () => {
    const { id } = await create();
    const again = await opened();
    expect(await again.observe({ sandboxId: id, generation: 1 }, AbortSignal.timeout(5_000))).toEqual({
      is: 'running',
    });
    const { address } = await again.agent({ sandboxId: id, generation: 1 }, AbortSignal.timeout(5_000));
    expect(address).toHaveProperty('socketPath');
    await again.close();
    await world.engine.pause(caller, id);
    await world.engine.kill(caller, id);
    await world.engine.reconcile();
    expect(provider.sandboxes.size).toBe(0);
  });
});
