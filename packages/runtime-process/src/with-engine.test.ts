import type { Engine, Instance } from '@torpor/engine';
import { type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import type { SandboxView } from '@torpor/protocol';
import { engineOn } from '@torpor/runtime-shared/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpService, pageOf } from '../testing/http-service.ts';
import { makeProcessWorld, type ProcessWorld, processesKnowing } from '../testing/process-world.ts';

describe('the engine on the process runtime', () => {
  let world: ProcessWorld;
  let fresh: FreshDatabase;
  let engine: Engine;
  const reported: unknown[] = [];
  const caller = { org: 'org' };

  beforeEach(async () => {
    world = await makeProcessWorld();
    fresh = await freshDatabase('sqlite');
    engine = engineOn(world, fresh, (what, facts) => reported.push({ what, ...facts }));
    await engine.start({ rounds: false });
  });
  afterEach(async () => {
    await engine.stop();
    await fresh.dispose();
    await world.dispose();
  });

  const instanceOf = ({ id, generation }: SandboxView): Instance => ({ sandboxId: id, generation });

  it('creates, snapshots, forks, pauses, resumes, recovers and kills, and reports what was lost', async () => {
    const sandbox = (await engine.create(caller, { services: [httpService()] })).sandbox;
    const first = await pageOf(world.runtime, instanceOf(sandbox), 3000);
    expect(sandbox).toMatchObject({ state: 'running', lost: [] });

    await engine.snapshot(caller, sandbox.id);
    expect(await pageOf(world.runtime, instanceOf(sandbox), 3000)).toEqual(first);
    const [fork] = (await engine.fork(caller, sandbox.id)).forks;
    const forked = (fork as { sandbox: SandboxView }).sandbox;
    expect((await pageOf(world.runtime, instanceOf(forked), 3000)).starts).toBe(2);
    expect((await pageOf(world.runtime, instanceOf(sandbox), 3000)).starts).toBe(1);

    expect((await engine.pause(caller, sandbox.id)).sandbox).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
    });
    await expect.poll(() => processesKnowing(world.home(instanceOf(sandbox)))).toEqual([]);
    const resumed = await engine.resume(caller, sandbox.id);
    expect(resumed).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    expect((await pageOf(world.runtime, instanceOf(resumed.sandbox), 3000)).starts).toBe(2);

    await world.program.write(instanceOf(resumed.sandbox), 'unsaved', 'work');
    await world.kill(instanceOf(resumed.sandbox));
    await engine.reconcile();
    expect(await engine.get(caller.org, sandbox.id)).toMatchObject({ state: 'paused' });
    const recovered = await engine.resume(caller, sandbox.id);
    expect(await world.program.read(instanceOf(recovered.sandbox), 'unsaved')).toBe('work');

    for (const { id } of [sandbox, forked]) {
      expect((await engine.kill(caller, id)).sandbox).toMatchObject({ state: 'killed' });
    }
    expect(reported).toEqual([]);
    expect(await processesKnowing(world.instancesDir)).toEqual([]);
  });

  it('goes back to paused when a service does not start again, and names the service', async () => {
    const flaky = httpService({ command: `[ ! -e broken ] || exit 7; ${httpService().command}` });
    const sandbox = (await engine.create(caller, { services: [flaky] })).sandbox;
    await world.program.write(instanceOf(sandbox), 'broken', '');
    await engine.pause(caller, sandbox.id);
    await expect(engine.resume(caller, sandbox.id)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('"web" ended (exit status 7)'),
    });
    expect(await engine.get(caller.org, sandbox.id)).toMatchObject({ state: 'paused' });
    expect(await processesKnowing(world.instancesDir)).toEqual([]);
    await engine.kill(caller, sandbox.id);
  });
});
