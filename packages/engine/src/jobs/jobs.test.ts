import { type EventView, type JobId, type SandboxId, serviceTag, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeProcesses } from '../../testing/fake-processes.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Database } from '../ports/database.ts';
import type { TrackedJob } from './job.ts';

const caller = { org: 'org' };
const WEB = { name: 'web', command: 'serve', port: 3000 };
const idOf = (letter: string): JobId => `job_${letter.repeat(20)}`;

/** Counts the statements. */
function counting(db: Database, count: { statements: number }): Database {
  const counted = <T extends object>(of: T): T =>
    new Proxy(of, {
      get(target, name) {
        const value = Reflect.get(target, name, target) as unknown;
        if (name === 'query')
          return (...args: unknown[]) => {
            count.statements++;
            return Reflect.apply(value as () => unknown, target, args);
          };
        if (name === 'transaction')
          return (work: (tx: object) => unknown) =>
            (value as (w: (tx: object) => unknown) => unknown).call(target, (tx) => work(counted(tx)));
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  return counted(db);
}

describe.each(databaseKinds)('jobs on %s', (kind) => {
  let world: World;
  let processes: FakeProcesses;
  const count = { statements: 0 };

  beforeEach(async () => {
    processes = new FakeProcesses();
    world = await makeWorld(kind, { parts: (base) => ({ processes, db: counting(base.db, count) }) });
    world.runtime.agent = async ({ sandboxId }) => ({ address: { socketPath: sandboxId }, token: 't' });
  });
  afterEach(async () => {
    for await (const { what } of world.engine.audit()) expect.unreachable(what);
    await world.dispose();
  });

  const track = async (sandboxId: SandboxId, letter: string, generation = 1): Promise<TrackedJob> => {
    const id = idOf(letter);
    processes.run(id);
    return world.engine.trackProcess('org', {
      id,
      sandboxId,
      generation,
      pid: 7,
      command: letter,
      cwd: null,
    });
  };
  /** Each job by the first letter of its id, or by the name of its service. */
  const states = async (id: SandboxId) => {
    const jobs = await world.engine.allJobs('org', id);
    return Object.fromEntries(
      jobs.map(({ name, command, state, lostReason }) => [
        name ?? command,
        lostReason === null ? state : `${state}: ${lostReason}`,
      ]),
    );
  };
  const eventsOf = (id: SandboxId): Promise<EventView[]> =>
    world.engine.events({ sandboxId: id, afterSeq: 0 }, 1_000);
  const types = async (id: SandboxId) =>
    (await eventsOf(id)).map(({ type }) => type).filter((type) => !type.startsWith('operation.'));

  it('are suspended and resumed with the memory of their sandbox, in the same transaction (R98, R110)', async () => {
    const { id, services } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    const a = await track(id, 'a');
    expect(services[0]?.jobId).toMatch(/^job_[a-z0-9]{20}$/);
    await world.engine.pause(caller, id);
    expect(await states(id)).toEqual({ web: 'suspended', a: 'suspended' });
    await world.engine.resume(caller, id);
    expect(await states(id)).toEqual({ web: 'running', a: 'running' });
    expect(await world.engine.job('org', a.id)).toMatchObject({ restarts: 0, generation: 1 });
    expect((await types(id)).slice(1)).toEqual([
      'sandbox.started',
      'job.created',
      'job.created',
      'sandbox.pausing',
      'sandbox.paused',
      'job.suspended',
      'job.suspended',
      'sandbox.resuming',
      'sandbox.resumed',
      'job.resumed',
      'job.resumed',
    ]);
    const events = await eventsOf(id);
    const paused = events.find(({ type }) => type === 'sandbox.paused');
    const suspended = events.filter(({ type }) => type === 'job.suspended');
    expect(suspended.map(({ operationId }) => operationId)).toEqual([
      paused?.operationId,
      paused?.operationId,
    ]);
    expect(suspended.map(({ position }) => position)).toEqual([
      Number(paused?.position) + 1,
      Number(paused?.position) + 2,
    ]);
  });

  it('are lost when only files are kept, and a service is started again (R98)', async () => {
    const { id, services } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    await track(id, 'a');
    await world.engine.pause(caller, id, { mode: 'files' });
    expect(await states(id)).toEqual({ web: 'lost: files_only_pause', a: 'lost: files_only_pause' });
    await world.engine.resume(caller, id);
    expect(await states(id)).toEqual({ web: 'running', a: 'lost: files_only_pause' });
    const web = await world.engine.job('org', services[0]?.jobId ?? idOf('x'));
    expect(web).toMatchObject({ restarts: 1, generation: 2, endedAt: null });
    expect((await types(id)).slice(-2)).toEqual(['sandbox.resumed', 'job.restarted']);
  });

  it('are lost with a sandbox that is killed, running or paused (R92, R98)', async () => {
    for (const asleep of [false, true]) {
      const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
      if (asleep) await world.engine.pause(caller, id);
      await world.engine.kill(caller, id);
      expect(await states(id)).toEqual({ web: 'lost: sandbox_killed' });
      expect((await eventsOf(id)).at(-1)).toMatchObject({
        type: 'job.lost',
        state: 'killed',
        data: { reason: 'sandbox_killed', message: 'The sandbox was killed.' },
      });
    }
  });

  it('are lost when the processes of the sandbox are gone, with its files or without (R92, R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    await track(id, 'a');
    world.runtime.vanish(id, false);
    await world.engine.reconcile();
    expect(await states(id)).toEqual({ web: 'lost: crash', a: 'lost: crash' });
    const { id: other } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    world.runtime.vanish(other, true);
    await world.engine.reconcile();
    expect((await world.engine.get('org', other)).state).toBe('lost');
    expect(await states(other)).toEqual({ web: 'lost: sandbox_lost' });
  });

  it('are lost when the memory they ran in cannot be used (R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    await track(id, 'a');
    await world.engine.pause(caller, id);
    world.runtime.build = 'another';
    await world.engine.resume(caller, id);
    expect(await states(id)).toEqual({ web: 'running', a: 'lost: fallback' });
  });

  it('stay suspended when a resume fails and may be tried again (R92)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB], fallback: [] })).sandbox;
    await world.engine.pause(caller, id);
    const { start } = world.runtime;
    world.runtime.start = () => Promise.reject(new TorporError('capacity', 'There is no room.'));
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'capacity' });
    expect(await states(id)).toEqual({ web: 'suspended' });
    world.runtime.start = start;
    await world.engine.resume(caller, id);
    expect(await states(id)).toEqual({ web: 'running' });
  });

  it('keep running when a pause fails (R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    world.runtime.capture = () => Promise.reject(new TorporError('storage_full', 'The disk is full.'));
    await expect(world.engine.pause(caller, id)).rejects.toMatchObject({ code: 'storage_full' });
    expect(await states(id)).toEqual({ web: 'running' });
  });

  it('are restored by a rollback to a checkpoint in which they ran, and newer ones are lost (R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    const a = await track(id, 'a');
    const b = await track(id, 'b');
    const { id: checkpointId } = (await world.engine.snapshot(caller, id, { name: 'then' })).checkpoint;
    expect(await states(id)).toEqual({ web: 'running', a: 'running', b: 'running' });
    await track(id, 'c');
    processes.end(a.id, { exitCode: 0, signal: null });
    await world.engine.compareJobs('org', id);
    expect(await states(id)).toMatchObject({ a: 'completed', b: 'running', c: 'running' });
    await world.engine.rollback(caller, id, { checkpointId });
    expect(await states(id)).toEqual({ web: 'running', a: 'running', b: 'running', c: 'lost: rollback' });
    expect(await world.engine.job('org', a.id)).toMatchObject({ exitCode: null, endedAt: null });
    expect(await world.engine.job('org', b.id)).toMatchObject({ state: 'running', generation: 1 });
  });

  it('of a fork have ids of their own and do not depend on those of the source (R98, R110)', async () => {
    const { id, services } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    const a = await track(id, 'a');
    const [one] = (await world.engine.fork(caller, id, {})).forks;
    if (one === undefined || !('sandbox' in one)) return expect.unreachable('it was not forked');
    const { sandbox } = one;
    expect(sandbox.services[0]).toMatchObject({ ...WEB, jobId: expect.stringMatching(/^job_/) });
    expect(sandbox.services[0]?.jobId).not.toBe(services[0]?.jobId);
    const copies = await world.engine.allJobs('org', sandbox.id);
    const copy = copies.find(({ command }) => command === 'a');
    expect(copy).toMatchObject({ state: 'running', forkedFrom: a.id, tag: a.tag, pid: 7 });
    expect(copy?.id).not.toBe(a.id);
    await world.engine.kill(caller, id);
    expect(await states(sandbox.id)).toEqual({ web: 'running', a: 'running' });
    // After a rollback to the checkpoint of its source, the fork has the same jobs and no second copy.
    const { items } = await world.engine.checkpoints('org', id, 1);
    await world.engine.rollback(caller, sandbox.id, { checkpointId: items[0]?.id ?? 'ckpt_' });
    expect(await world.engine.allJobs('org', sandbox.id)).toHaveLength(2);
    expect(await states(sandbox.id)).toEqual({ web: 'running', a: 'running' });
  });

  it('of a fork from files are only its services (R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    await track(id, 'a');
    await world.engine.pause(caller, id, { mode: 'files' });
    const [one] = (await world.engine.fork(caller, id, {})).forks;
    if (one === undefined || !('sandbox' in one)) return expect.unreachable('it was not forked');
    expect(await states(one.sandbox.id)).toEqual({ web: 'running' });
  });

  it('that end are noticed while the sandbox runs (R98)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const a = await track(id, 'a');
    const settled = expect.poll(async () => {
      world.clock.advance(1_000);
      return world.engine.job('org', a.id);
    });
    processes.end(a.id, { exitCode: 137, signal: 'SIGKILL' });
    await settled.toMatchObject({ state: 'completed', exitCode: 137, signal: 'SIGKILL' });
    expect((await eventsOf(id)).at(-1)).toMatchObject({ type: 'job.completed', data: { exitCode: 137 } });
  });

  it('that ended while no server watched are found by the reconciler (R108)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    processes.run(serviceTag('web'));
    const a = await track(id, 'a');
    const b = await track(id, 'b');
    await world.engine.stop();
    processes.end(a.id, { exitCode: 3, signal: null });
    processes.end(b.id);
    const next = await world.another();
    expect(await next.job('org', a.id)).toMatchObject({ state: 'completed', exitCode: 3 });
    expect(await next.job('org', b.id)).toMatchObject({ state: 'lost', lostReason: 'not_found' });
    expect(await states(id)).toMatchObject({ web: 'running' });
  });

  it('are left alone while the agent does not answer (R108)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const a = await track(id, 'a');
    processes.reachable = false;
    processes.canWait = false;
    processes.end(a.id, { exitCode: 3, signal: null });
    const round = await world.engine.reconcile();
    expect(round.failed).toBe(0);
    expect(await states(id)).toEqual({ a: 'running' });
    processes.reachable = true;
    expect((await world.engine.reconcile()).did).toMatchObject([
      { sandboxId: id, what: expect.stringMatching(/was found completed/) },
    ]);
  });

  it('whose server died before it recorded them are found by their tag (R108)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    processes.run(idOf('a'), 9);
    processes.run('somebody-else');
    await world.engine.reconcile();
    expect(await world.engine.allJobs('org', id)).toMatchObject([
      { id: idOf('a'), state: 'running', pid: 9 },
    ]);
    // A caller that records the job late finds it there.
    expect(await track(id, 'a')).toMatchObject({ id: idOf('a'), pid: 9 });
    expect((await types(id)).filter((type) => type === 'job.created')).toHaveLength(1);
  });

  it('of a service run as long as something listens on its port (R98)', async () => {
    const { id } = (await world.engine.create(caller, { services: [WEB] })).sandbox;
    world.runtime.dial = async () => null;
    const listening = world.runtime as { dial(): Promise<{ socketPath: string } | null> };
    listening.dial = async () => ({ socketPath: 'port' });
    await world.engine.compareJobs('org', id);
    expect(await states(id)).toEqual({ web: 'running' });
    listening.dial = async () => null;
    await world.engine.compareJobs('org', id);
    expect(await states(id)).toEqual({ web: 'lost: not_found' });
  });

  it('of a service that has ended with exit code 0 stay completed while the memory lasts (R98)', async () => {
    const once = { name: 'once', command: 'prepare' };
    const { id, services } = (await world.engine.create(caller, { services: [once] })).sandbox;
    processes.run(serviceTag('once'));
    processes.end(serviceTag('once'), { exitCode: 0, signal: null });
    await world.engine.compareJobs('org', id);
    const jobId = services[0]?.jobId ?? idOf('x');
    const { start } = world.runtime;
    world.runtime.start = async (...args) => {
      const started = await start.apply(world.runtime, args);
      return started.mode === 'memory' ? { ...started, succeeded: ['once'] } : started;
    };
    await world.engine.pause(caller, id);
    await world.engine.resume(caller, id);
    expect(await world.engine.job('org', jobId)).toMatchObject({ state: 'completed', restarts: 0 });
    expect(await types(id)).not.toContain('job.restarted');

    await world.engine.pause(caller, id, { mode: 'files' });
    await world.engine.resume(caller, id);
    expect(await world.engine.job('org', jobId)).toMatchObject({ state: 'running', restarts: 1 });
  });

  it('cannot be added to a sandbox that was paused or started again since (R98)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await world.engine.pause(caller, id);
    await expect(track(id, 'a')).rejects.toMatchObject({ code: 'transitioning' });
    await world.engine.resume(caller, id);
    await expect(track(id, 'a')).rejects.toMatchObject({ code: 'transitioning' });
    expect(await states(id)).toEqual({});
  });

  it('are not visible to another organisation (R104)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const a = await track(id, 'a');
    await expect(world.engine.job('other', a.id)).rejects.toMatchObject({ code: 'not_found' });
    await expect(world.engine.jobs('other', id, [], undefined, 10)).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('are listed in pages, newest first, by state (R98)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    for (const letter of 'abc') {
      await track(id, letter);
      world.clock.advance(1);
    }
    processes.end(idOf('b'), { exitCode: 0, signal: null });
    await world.engine.compareJobs('org', id);
    const { items, nextCursor } = await world.engine.jobs('org', id, [], undefined, 2);
    expect([items.map(({ command }) => command), nextCursor]).toEqual([['c', 'b'], idOf('b')]);
    const rest = await world.engine.jobs('org', id, [], idOf('b'), 2);
    expect([rest.items.map(({ command }) => command), rest.nextCursor]).toEqual([['a'], null]);
    const running = await world.engine.jobs('org', id, ['running', 'lost'], undefined, 10);
    expect(running.items.map(({ command }) => command)).toEqual(['c', 'a']);
    await expect(world.engine.jobs('org', id, [], idOf('z'), 2)).rejects.toMatchObject({
      code: 'invalid_request',
    });
  });

  it('add two statements to a resume, however many there are', async () => {
    const costOf = async (jobs: string) => {
      const { id } = (await world.engine.create(caller, {})).sandbox;
      for (const letter of jobs) await track(id, letter);
      await world.engine.pause(caller, id);
      const before = count.statements;
      await world.engine.resume(caller, id);
      return count.statements - before;
    };
    const [none, many] = [await costOf(''), await costOf('mnopqrst')];
    expect(many - none).toBe(1);
  });
});
