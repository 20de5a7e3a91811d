import type { Service } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';

const caller = { org: 'org' };
const WEB: Service = { name: 'web', command: 'node server.mjs', port: 3000, env: { TOKEN: 'secret' } };

describe.each(databaseKinds)('the declared services of a sandbox on %s', (kind) => {
  let world: World;
  beforeEach(async () => {
    world = await makeWorld(kind);
  });
  afterEach(() => world.dispose());

  it('can be set while the sandbox runs or is paused, and the next start gets them', async () => {
    const { engine, runtime } = world;
    const started: (readonly Service[])[] = [];
    const { start } = runtime;
    runtime.start = (...given) => {
      started.push(given[3].services);
      return start.apply(runtime, given);
    };
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.setServices('org', id, [WEB]);
    expect(await engine.get('org', id)).toMatchObject({
      state: 'running',
      services: [{ ...WEB, jobId: expect.stringMatching(/^job_/) }],
      generation: 1,
    });
    await engine.pause(caller, id);
    await engine.resume(caller, id);
    await engine.pause(caller, id);
    await engine.setServices('org', id, []);
    await engine.resume(caller, id);
    expect(started).toMatchObject([[], [WEB], []]);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    const set = events.filter(({ type }) => type === 'services.set');
    expect(set.map(({ data }) => data)).toEqual([{ services: ['web'] }, { services: [] }]);
  });

  it('cannot be set by another organisation, or when the sandbox has ended', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await expect(engine.setServices('other', id, [WEB])).rejects.toMatchObject({ code: 'not_found' });
    await engine.kill(caller, id);
    await expect(engine.setServices('org', id, [WEB])).rejects.toMatchObject({ code: 'killed' });
    expect((await engine.get('org', id)).services).toEqual([]);
  });
});
