import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SandboxId, Service } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryRuntime } from '../../testing/memory-runtime.ts';
import { ProviderRuntime } from '../../testing/provider-runtime.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';
import type { TemplateSpec } from '../ports/runtime.ts';

const caller = { org: 'org' };
const web: Service = { name: 'web', command: 'serve', port: 3000 };

describe.each(databaseKinds)('a template on %s', (kind) => {
  let world: World;
  let engine: Engine;
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-archives-'));
    const runtimes = ({ store }: Pick<World, 'store'>) => [
      new ProviderRuntime(),
      new MemoryRuntime({ name: 'plain', files: store, capabilities: { customTemplates: false } }),
    ];
    world = await makeWorld(kind, { runtimes });
    engine = world.engine;
  });
  afterEach(async () => {
    await world.dispose();
    await rm(directory, { recursive: true });
  });

  const archiveOf = async (text: string) => {
    const archive = join(directory, 'archive.tar');
    await writeFile(archive, text);
    return archive;
  };
  const make = async (name: string, more: object = {}, text = 'a root') =>
    engine.prepareTemplate(caller, { name, archive: await archiveOf(text), ...more });
  const stored = async () => {
    const ids: string[] = [];
    for await (const { id } of world.store.list()) ids.push(id);
    return ids;
  };
  const refused = (promise: Promise<unknown>, code: string, more: object = {}) =>
    expect(promise).rejects.toMatchObject({ code, ...more });
  const cycle = async (id: SandboxId) => {
    const { checkpoint } = await engine.pause(caller, id);
    await engine.resume(caller, id);
    return checkpoint.id;
  };

  /** The runtime begins to prepare a template, and continues when the test lets it. */
  function held() {
    let [begin, goOn, giveUp]: ((reason?: unknown) => void)[] = [];
    const begun = new Promise((resolve) => {
      begin = resolve;
    });
    const gate = new Promise((resolve, reject) => {
      [goOn, giveUp] = [() => resolve(undefined), reject];
    });
    const real = world.runtime.prepareTemplate.bind(world.runtime);
    world.runtime.prepareTemplate = async (order: TemplateSpec, staging, signal) => {
      signal?.addEventListener('abort', () => giveUp?.(signal.reason));
      await order.progress('booting');
      begin?.();
      await gate;
      return real(order, staging);
    };
    return { begun, goOn: () => goOn?.(), fail: (error: Error) => giveUp?.(error) };
  }

  it('is named to the runtime by a create, also when it was made from a checkpoint', async () => {
    const start = vi.spyOn(world.runtime, 'start');
    const fromTemplate = () => start.mock.lastCall?.[3].fromTemplate;
    const { sandbox } = await engine.create(caller, {});
    expect(fromTemplate()).toBe(true);
    await cycle(sandbox.id);
    expect(fromTemplate()).toBe(false);
    const { checkpoint } = await engine.snapshot(caller, sandbox.id);
    await engine.nameTemplate('org', { name: 'app', from: checkpoint.id });
    await engine.create(caller, { template: 'app' });
    expect(fromTemplate()).toBe(true);
    await engine.create(caller, { from: checkpoint.id });
    expect(fromTemplate()).toBe(false);
    await engine.fork(caller, sandbox.id, {});
    expect(fromTemplate()).toBe(false);
  });

  describe('from an archive', () => {
    it('gives sandboxes its files, its memory, its services and its environment', async () => {
      const env = { LEVEL: '1', PLACE: 'template' };
      const made = await make('app', { services: [web], env, description: 'serves' });
      expect(made).toMatchObject({
        name: 'app',
        runtime: 'memory',
        builtIn: false,
        state: 'ready',
        phase: null,
        description: 'serves',
        services: [web],
      });
      const worker = { name: 'worker', command: 'work' };
      const request = { template: 'app', services: [worker], env: { PLACE: 'sandbox' } };
      const sandbox = (await engine.create(caller, request)).sandbox;
      expect(sandbox).toMatchObject({
        template: 'app',
        baseId: made.checkpointId,
        services: [web, worker],
      });
      expect(world.runtime.look(sandbox.id)).toEqual({ files: { '/root': 'a root' }, counter: 1 });
      const [row] = await world.db.query<{ config: string }>('SELECT config FROM sandboxes WHERE id = $1', [
        sandbox.id,
      ]);
      expect(JSON.parse(row?.config ?? '')).toMatchObject({ env: { LEVEL: '1', PLACE: 'sandbox' } });
    });

    it('has its service replaced by a service of the sandbox with the same name', async () => {
      await make('app', { services: [web] });
      const own = { ...web, command: 'serve otherwise' };
      expect(
        (await engine.create(caller, { template: 'app', services: [own] })).sandbox.services,
      ).toMatchObject([own]);
    });

    it('has limits for sandboxes whose request sets none', async () => {
      const resources = { memoryMb: 512, cpus: 2 };
      expect((await make('app', { resources })).resources).toEqual(resources);
      const limitsOf = async (more: object) =>
        (await engine.create(caller, { template: 'app', ...more })).sandbox.resources;
      expect(await limitsOf({})).toEqual(resources);
      expect(await limitsOf({ resources: { cpus: 1, diskMb: 100 } })).toEqual({
        memoryMb: 512,
        cpus: 1,
        diskMb: 100,
      });
    });

    it('leaves no row, no bytes and no taken name when it cannot be made', async () => {
      const before = await stored();
      await refused(make('app', {}, 'hostile'), 'invalid_request');
      expect((await engine.templates('org')).map(({ name }) => name)).not.toContain('app');
      expect(await stored()).toEqual(before);
      expect(await make('app')).toMatchObject({ state: 'ready' });
    });

    it('is refused where the runtime cannot run it, before anything is written', async () => {
      await refused(make('app', { runtime: 'plain' }), 'capability_unsupported');
      await refused(
        engine.refuseTemplate('org', { name: 'app', runtime: 'plain' }),
        'capability_unsupported',
      );
      await refused(make('app', { runtime: 'no such' }), 'capability_unsupported');
      await refused(engine.template('org', 'app'), 'not_found');
    });

    it('belongs to one runtime, which its sandboxes get by default', async () => {
      await make('app', { runtime: 'provider' });
      expect((await engine.create(caller, { template: 'app' })).sandbox).toMatchObject({
        runtime: 'provider',
      });
      await refused(engine.create(caller, { template: 'app', runtime: 'memory' }), 'not_found');
    });
  });

  describe('that is being prepared', () => {
    it('shows its phase, keeps its name, and cannot be used or deleted yet', async () => {
      const { begun, goOn } = held();
      const making = make('app');
      await begun;
      expect(await engine.template('org', 'app')).toMatchObject({
        state: 'preparing',
        phase: 'booting',
        checkpointId: null,
      });
      await refused(engine.create(caller, { template: 'app' }), 'transitioning');
      await refused(engine.deleteTemplate('org', 'app'), 'transitioning');
      await refused(make('app'), 'conflict');
      // Longer than an operation may take, as for a large root.
      world.clock.advance(130_000);
      await engine.heartbeat();
      await engine.reconcile();
      goOn();
      expect(await making).toMatchObject({ state: 'ready' });
    });

    it('keeps the reason of its failure for a caller that stopped waiting, and can be made again', async () => {
      const { begun, fail } = held();
      const waiting = new AbortController();
      const request = { name: 'app', archive: await archiveOf('a root') };
      const making = engine.prepareTemplate({ ...caller, signal: waiting.signal }, request);
      await begun;
      waiting.abort();
      fail(new Error('a fault'));
      await refused(making, 'internal');
      expect(await engine.template('org', 'app')).toMatchObject({
        state: 'failed',
        checkpointId: null,
        error: { code: 'internal' },
      });
      await refused(engine.create(caller, { template: 'app' }), 'conflict');
      world.clock.advance(25 * 3_600_000);
      await engine.reconcile();
      await refused(engine.template('org', 'app'), 'not_found');
    });

    it('fails when its server died, and what that server still does changes nothing', async () => {
      const { begun, goOn } = held();
      const before = await stored();
      const making = make('app');
      await begun;
      world.clock.advance(60_000);
      const heir = await world.another();
      expect(await heir.template('org', 'app')).toMatchObject({
        state: 'failed',
        error: { code: 'unreachable' },
      });
      goOn();
      await refused(making, 'conflict');
      await heir.reconcile();
      expect(await heir.template('org', 'app')).toMatchObject({ state: 'failed' });
      expect(await stored()).toEqual(before);
    });

    it('does not delay a server that stops', async () => {
      const { begun } = held();
      const making = make('app').catch((thrown: unknown) => thrown);
      await begun;
      await engine.stop();
      expect(await making).toMatchObject({ code: 'unreachable' });
      const next = await world.another();
      expect(await next.template('org', 'app')).toMatchObject({ state: 'failed' });
    });

    it('fails when it takes too long', async () => {
      const { begun } = held();
      const making = make('app').catch((thrown: unknown) => thrown);
      await begun;
      world.clock.advance(900_001);
      expect(await making).toMatchObject({ code: 'timeout' });
      await refused(engine.template('org', 'app'), 'not_found');
    });
  });

  describe('from a checkpoint', () => {
    it('starts sandboxes with the services, environment and limits of its source, like a fork', async () => {
      const resources = { memoryMb: 256 };
      const { id } = (await engine.create(caller, { services: [web], env: { A: '1' }, resources })).sandbox;
      world.runtime.work(id, '/seeded', 'yes');
      const { checkpoint } = await engine.pause(caller, id);
      const made = await engine.nameTemplate('org', { name: 'seeded', from: checkpoint.id });
      expect(made).toMatchObject({ state: 'ready', checkpointId: checkpoint.id, services: [web], resources });
      const { id: first } = (await engine.create(caller, { template: 'seeded' })).sandbox;
      const { id: second, services } = (await engine.create(caller, { template: 'seeded' })).sandbox;
      expect(services).toMatchObject([web]);
      for (const one of [first, second]) {
        expect(world.runtime.look(one)).toMatchObject({ files: { '/seeded': 'yes' }, counter: 1 });
      }
      const events = await engine.events({ sandboxId: first, afterSeq: 0 }, 100);
      expect(events.find(({ type }) => type === 'sandbox.started')?.data).toMatchObject({
        source: { kind: 'template', checkpointId: checkpoint.id },
      });
    });

    it('keeps the checkpoint as long as the template exists, whatever happens to its sandbox', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      const { checkpoint } = await engine.pause(caller, id);
      await engine.nameTemplate('org', { name: 'seeded', from: checkpoint.id });
      await engine.resume(caller, id);
      for (let times = 0; times < 3; times++) await cycle(id);
      await engine.kill(caller, id);
      await engine.reconcile();
      expect(await stored()).toContain(checkpoint.id);
      await refused(engine.deleteCheckpoint('org', checkpoint.id), 'conflict');
      await engine
        .create(caller, { template: 'seeded' })
        .then(({ sandbox }) => engine.kill(caller, sandbox.id));
      await engine.deleteTemplate('org', 'seeded');
      await engine.reconcile();
      expect(await stored()).not.toContain(checkpoint.id);
    });

    it('is refused for a checkpoint that cannot be forked or does not exist', async () => {
      const { id } = (await engine.create(caller, { runtime: 'provider' })).sandbox;
      const { checkpoint } = await engine.pause(caller, id);
      await refused(engine.nameTemplate('org', { name: 'x', from: checkpoint.id }), 'capability_unsupported');
      await refused(engine.nameTemplate('org', { name: 'x', from: `ckpt_${'0'.repeat(20)}` }), 'not_found');
      const { checkpointId } = await engine.template('org', 'base');
      if (checkpointId === null) throw new Error('It is not ready.');
      await refused(engine.nameTemplate('org', { name: 'x', from: checkpointId }), 'conflict');
    });
  });

  describe('of an organisation', () => {
    it('is not visible to another organisation, which may use its name (R104)', async () => {
      const { checkpointId } = await make('app');
      if (checkpointId === null) throw new Error('It is not ready.');
      const { id } = (await engine.create(caller, {})).sandbox;
      const snapshot = (await engine.snapshot(caller, id)).checkpoint;
      await refused(engine.template('other', 'app'), 'not_found');
      await refused(engine.create({ org: 'other' }, { template: 'app' }), 'not_found');
      await refused(engine.deleteTemplate('other', 'app'), 'not_found');
      await refused(engine.checkpoint('other', checkpointId), 'not_found');
      await refused(engine.create({ org: 'other' }, { from: checkpointId }), 'not_found');
      await refused(engine.nameTemplate('other', { name: 'mine', from: snapshot.id }), 'not_found');
      expect((await engine.templates('other')).map(({ name }) => name)).not.toContain('app');
      const archive = await archiveOf('another root');
      await engine.prepareTemplate({ org: 'other' }, { name: 'app', archive });
      const theirs = (await engine.create({ org: 'other' }, { template: 'app' })).sandbox;
      expect(world.runtime.look(theirs.id)?.files).toEqual({ '/root': 'another root' });
    });

    it('has a name that is not taken; of two concurrent creates one succeeds', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      const { id: from } = (await engine.snapshot(caller, id)).checkpoint;
      await make('app');
      await refused(make('app'), 'conflict');
      await refused(engine.refuseTemplate('org', { name: 'app' }), 'conflict');
      await refused(engine.nameTemplate('org', { name: 'app', from }), 'conflict');
      const creates = await Promise.allSettled(
        [1, 2, 3].map(() => engine.nameTemplate('org', { name: 'x', from })),
      );
      expect(creates.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
    });
  });

  describe('that is published', () => {
    const other = { org: 'other' };

    it('starts sandboxes of other organisations, which cannot see, change or list it', async () => {
      await make('app', { env: { A: '1' }, services: [web] });
      await refused(engine.create(other, { template: 'org/app' }), 'not_found');
      expect(await engine.publishTemplate('org', 'app', true)).toMatchObject({ public: true });
      const { sandbox } = await engine.create(other, { template: 'org/app', fallback: ['template'] });
      expect(sandbox).toMatchObject({ template: 'org/app', services: [web] });
      expect(world.runtime.look(sandbox.id)?.files).toEqual({ '/root': 'a root' });
      expect((await engine.create(caller, { template: 'org/app' })).sandbox.state).toBe('running');
      await refused(engine.create(other, { template: 'app' }), 'not_found');
      await refused(engine.create(other, { template: 'org/base' }), 'not_found');
      await refused(engine.publishTemplate('other', 'app', false), 'not_found');
      for (const change of [
        () => engine.deleteTemplate('other', 'org/app'),
        () => engine.copyTemplate('other', 'org/app', ['mine']),
        () => engine.publishTemplate('other', 'org/app', false),
        () => engine.publishTemplate('org', 'base', true),
      ])
        await refused(change(), 'forbidden');
      expect((await engine.templates('other')).map(({ name }) => name)).not.toContain('app');
    });

    it('stays published in its next version, until that is ended; sandboxes stay', async () => {
      await make('app');
      await engine.publishTemplate('org', 'app', true);
      const { id } = (await engine.create(other, { template: 'org/app' })).sandbox;
      const { checkpoint } = await engine.snapshot(caller, (await engine.create(caller, {})).sandbox.id);
      for (const name of ['app', 'app:v2'])
        expect(await engine.nameTemplate('org', { name, from: checkpoint.id }, 'replace')).toMatchObject({
          public: true,
          checkpointId: checkpoint.id,
        });
      expect((await engine.create(other, { template: 'org/app:v2' })).sandbox.baseId).toBe(checkpoint.id);
      await engine.publishTemplate('org', 'app', false);
      await refused(engine.create(other, { template: 'org/app' }), 'not_found');
      await engine.deleteTemplate('org', 'app');
      await engine.pause(other, id);
      await engine.resume(other, id);
      expect(await engine.get('other', id)).toMatchObject({ state: 'running', template: 'org/app' });
    });
  });

  describe('with the name of a built-in one', () => {
    it('takes its place in its organisation alone, until it is deleted', async () => {
      const builtIn = await engine.template('org', 'base');
      const own = await make('base', {}, 'our root');
      expect(own).toMatchObject({ name: 'base', builtIn: false });
      expect(await engine.templates('org')).toEqual([expect.objectContaining({ builtIn: false })]);
      expect((await engine.create(caller, {})).sandbox.baseId).toBe(own.checkpointId);
      const other = (await engine.create({ org: 'other' }, {})).sandbox;
      expect(other.baseId).toBe(builtIn.checkpointId);
      await engine.deleteTemplate('org', 'base');
      expect((await engine.create(caller, {})).sandbox.baseId).toBe(builtIn.checkpointId);
    });
  });

  describe('that is built in', () => {
    const phase = async () => (await engine.template('org', 'base')).phase;

    it('shows the progress of its next version, and what its root is when that is ready', async () => {
      const before = await engine.template('org', 'base');
      const prepare = held();
      // Last: the look that the start of the server has begun may still be under way.
      Object.assign(world.runtime, { isOutdated: async () => true });
      engine.renewTemplates();
      await prepare.begun;
      expect(await engine.template('org', 'base')).toEqual({ ...before, phase: 'booting' });
      await engine.setTemplatePhase('memory', 'base', 'making its own root');
      expect(await engine.template('org', 'base')).toMatchObject({ phase: 'making its own root' });
      prepare.goOn();
      await expect.poll(phase, { timeout: 10_000 }).toBeNull();
      const after = await engine.builtInTemplate('base');
      expect(after.checkpointId).not.toBe(before.checkpointId);
    });

    it('is prepared again when the machine has changed meanwhile, and the server starts', async () => {
      const changing = ({ store }: Pick<World, 'store'>) => {
        const runtime = new MemoryRuntime({ name: 'changing', files: store });
        const real = runtime.checkUsable.bind(runtime);
        let changes = 2;
        runtime.checkUsable = async (checkpoint) =>
          changes-- > 0 ? { usable: false, why: 'the machine has changed' } : real(checkpoint);
        return [runtime];
      };
      const other = await makeWorld(kind, { runtimes: changing });
      const { sandbox } = await other.engine.create(caller, { runtime: 'changing' });
      expect(sandbox).toMatchObject({ state: 'running', runtime: 'changing' });
      await other.dispose();
    });

    it('shows what its root is', async () => {
      const templateRoot = { kind: 'own', digest: 'abc' } as const;
      // Before the look of the server's start can find it outdated.
      expect(await engine.template('org', 'base')).toMatchObject({ root: null });
      const real = world.runtime.prepareTemplate.bind(world.runtime);
      Object.assign(world.runtime, {
        isOutdated: async () => true,
        prepareTemplate: async (...order: Parameters<typeof real>) => ({
          ...(await real(...order)),
          templateRoot,
        }),
      });
      engine.renewTemplates();
      await expect
        .poll(async () => (await engine.template('org', 'base')).root, { timeout: 10_000 })
        .toEqual(templateRoot);
    });

    it('keeps its version and shows no phase when the next one cannot be made', async () => {
      Object.assign(world.runtime, { isOutdated: async () => true });
      const before = await engine.template('org', 'base');
      const prepare = held();
      engine.renewTemplates();
      await prepare.begun;
      prepare.fail(new Error('no room'));
      await expect.poll(() => engine.template('org', 'base'), { timeout: 10_000 }).toEqual(before);
    });
  });

  describe('that is deleted', () => {
    it('keeps its sandboxes, and its bytes as long as one of them needs them', async () => {
      const { checkpointId } = await make('app');
      const { id } = (await engine.create(caller, { template: 'app' })).sandbox;
      await engine.deleteTemplate('org', 'app');
      await refused(engine.create(caller, { template: 'app' }), 'not_found');
      await engine.reconcile();
      expect(await stored()).toContain(checkpointId);
      expect(await engine.get('org', id)).toMatchObject({ state: 'running', template: 'app' });
      await cycle(id);
      await engine.reconcile();
      expect(await stored()).not.toContain(checkpointId);
    });

    it('is removed with its bytes at once when no sandbox needs them', async () => {
      const before = await stored();
      await make('app');
      await engine.deleteTemplate('org', 'app');
      await expect.poll(stored).toEqual(before);
    });

    it('does not keep a sandbox from resuming that may fall back to it', async () => {
      await make('app');
      const { id } = (await engine.create(caller, { template: 'app', fallback: ['files', 'template'] }))
        .sandbox;
      await engine.pause(caller, id);
      await engine.deleteTemplate('org', 'app');
      expect((await engine.resume(caller, id)).sandbox.state).toBe('running');
    });

    it('cannot be a built-in one', async () => {
      await refused(engine.deleteTemplate('org', 'base'), 'forbidden');
    });
  });
});
