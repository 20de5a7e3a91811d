import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

async function paused() {
  const id = await server.create();
  const reply = await server.ask('POST', `/v1/sandboxes/${id}/pause`);
  return { id, checkpointId: reply.json().checkpoint.id as `ckpt_${string}` };
}

describe('orgId in a query', () => {
  it('is accepted on reads when it is the organisation of the key (R97, R100)', async () => {
    const { id, checkpointId } = await paused();
    const paths = [
      '/v1/sandboxes',
      `/v1/sandboxes/${id}`,
      `/v1/sandboxes/${id}/checkpoints`,
      `/v1/sandboxes/${id}/events`,
      `/v1/sandboxes/${id}/processes`,
      `/v1/checkpoints/${checkpointId}`,
      '/v1/events',
      '/v1/operations',
    ];
    for (const path of paths) {
      const answer = await server.ask('GET', `${path}?orgId=default`);
      expect([path, answer.statusCode]).toEqual([path, 200]);
    }
  });

  it('of another organisation is refused with a typed error, never ignored (R97, R104)', async () => {
    const { id, checkpointId } = await paused();
    const paths = [
      `/v1/sandboxes/${id}`,
      `/v1/sandboxes/${id}/checkpoints`,
      `/v1/checkpoints/${checkpointId}`,
      '/v1/sandboxes',
      '/v1/runtimes',
    ];
    for (const path of paths) {
      const answer = await server.ask('GET', `${path}?orgId=other`);
      expect([path, answer.statusCode, errorIn(answer).code]).toEqual([path, 403, 'forbidden']);
    }
    const killed = await server.ask('DELETE', `/v1/sandboxes/${id}?orgId=other`);
    expect([killed.statusCode, errorIn(killed).code]).toEqual([403, 'forbidden']);
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({ state: 'paused' });
  });
});

describe('checkpoints with a name', () => {
  it('are found in all sandboxes of the organisation, newest first, and in no other', async () => {
    const found = async (name: string, key = server.keys.default) =>
      (await server.ask('GET', `/v1/checkpoints?name=${name}`, { key }))
        .json()
        .items.map(({ id }: { id: string }) => id);
    const ids: string[] = [];
    for (const key of [server.keys.default, server.keys.default, server.keys.other]) {
      const sandbox = await server.create({}, key);
      const url = `/v1/sandboxes/${sandbox}/checkpoints`;
      ids.push((await server.ask('POST', url, { body: { name: 'step' }, key })).json().id);
    }
    expect(await found('step')).toEqual([ids[1], ids[0]]);
    expect(await found('step', server.keys.other)).toEqual([ids[2]]);
    expect(await found('other')).toEqual([]);
    expect((await server.ask('GET', '/v1/checkpoints')).statusCode).toBe(400);
  });
});

describe('a sandbox whose only checkpoint is missing', () => {
  it('says which, where and why in every answer, and the three endpoints agree (R91, R92)', async () => {
    const { id, checkpointId } = await paused();
    const location = (await server.ask('GET', `/v1/checkpoints/${checkpointId}`)).json().location;
    server.world.store.takeAway(checkpointId);
    const asked = [
      await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body: { command: 'true' } }),
      await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body: { command: 'true' } }),
      await server.ask('POST', `/v1/sandboxes/${id}/resume`),
    ];
    for (const answer of asked) {
      expect(answer.statusCode).toBe(410);
      expect(errorIn(answer)).toMatchObject({
        code: 'lost',
        sandboxId: id,
        checkpointId,
        details: { location, code: 'checkpoint_missing' },
      });
    }
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({
      state: 'lost',
      reason: expect.stringContaining(checkpointId),
      checkpointHealth: { health: 'missing' },
      lostCheckpoint: { checkpointId, location, code: 'checkpoint_missing' },
    });
    const { items: events } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
    expect(events.at(-1)).toMatchObject({
      type: 'sandbox.lost',
      data: { checkpointId, location, code: 'checkpoint_missing' },
    });
    const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/checkpoints`)).json();
    expect(items).toMatchObject([{ id: checkpointId, health: 'damaged', healthCode: 'checkpoint_missing' }]);
  });
});

describe('the health of checkpoints', () => {
  it('is counted in the metrics, by kind (R108, R115)', async () => {
    const figures = async () => {
      const { body } = await server.ask('GET', '/metrics');
      return [...body.matchAll(/^torpor_checkpoints_unhealthy\{health="(\w+)"\} (\d+)$/gm)].map(
        ([, health, count]) => [health, Number(count)] as const,
      );
    };
    const before = new Map(await figures());
    expect([...before.keys()].sort()).toEqual(['damaged', 'missing', 'unknown']);
    const { id, checkpointId } = await paused();
    server.world.store.takeAway(checkpointId);
    await server.ctx.engine.inspectCheckpoints();
    expect(new Map(await figures()).get('missing')).toBe((before.get('missing') ?? 0) + 1);
    server.world.store.bringBack(checkpointId);
    await server.ctx.engine.inspectCheckpoints();
    expect(new Map(await figures())).toEqual(before);
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
  });
});

describe('a list of sandboxes by name', () => {
  it('includes ended sandboxes of that name, and no others', async () => {
    const old = await server.create({ name: 'by-name' });
    await server.ask('DELETE', `/v1/sandboxes/${old}`);
    await server.create({ name: 'other-name' });
    const { items } = (await server.ask('GET', '/v1/sandboxes?name=by-name')).json();
    expect(items).toMatchObject([{ id: old, state: 'killed' }]);
  });
});

describe('a name of a checkpoint', () => {
  it('is given later, keeps the checkpoint, and is told in the ledger', async () => {
    const { id, checkpointId } = await paused();
    const path = `/v1/checkpoints/${checkpointId}/names`;
    const named = await server.ask('POST', path, { body: { name: 'before-upgrade' } });
    expect([named.statusCode, named.json().names]).toEqual([200, ['before-upgrade']]);
    // The same name again changes nothing.
    expect((await server.ask('POST', path, { body: { name: 'before-upgrade' } })).statusCode).toBe(200);
    const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
    expect(items.filter(({ type }: { type: string }) => type === 'checkpoint.named')).toMatchObject([
      { data: { checkpointId, name: 'before-upgrade' } },
    ]);
    await server.ask('POST', `/v1/sandboxes/${id}/resume`);
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    const kept = await server.ask('GET', `/v1/checkpoints/${checkpointId}`);
    expect(kept.json()).toMatchObject({ state: 'sealed', expiresAt: null });
  });

  it('that another checkpoint of the sandbox has is refused, and nothing changes', async () => {
    const { id, checkpointId } = await paused();
    await server.ask('POST', `/v1/checkpoints/${checkpointId}/names`, { body: { name: 'taken' } });
    await server.ask('POST', `/v1/sandboxes/${id}/resume`);
    const second = (await server.ask('POST', `/v1/sandboxes/${id}/pause`)).json().checkpoint.id;
    const refused = await server.ask('POST', `/v1/checkpoints/${second}/names`, { body: { name: 'taken' } });
    expect([refused.statusCode, errorIn(refused).code]).toEqual([409, 'conflict']);
    expect((await server.ask('GET', `/v1/checkpoints/${second}`)).json().names).toEqual([]);
    const bad = await server.ask('POST', `/v1/checkpoints/${second}/names`, { body: { name: 'a b' } });
    expect([bad.statusCode, errorIn(bad).code]).toEqual([400, 'invalid_request']);
  });
});
