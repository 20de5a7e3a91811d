import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
beforeAll(async () => {
  server = await testServer();
  url = await server.listen();
});
afterAll(() => server.dispose());

function fsck(key = server.keys.default): Promise<Response> {
  return fetch(`${url}/v1/admin/fsck`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
  });
}

describe('fsck', () => {
  it('finds nothing in a healthy server', async () => {
    await server.create();
    expect(await (await fsck()).json()).toMatchObject({
      round: { takenUp: 0, repaired: 0, unknown: 0, failed: 0 },
      sandboxes: 1,
      findings: [],
    });
  });

  it('repairs what it can and reports the rest, to operator keys only (R108, R104)', async () => {
    const id = await server.create();
    await server.runtime.agent({ sandboxId: id, generation: 1 });
    server.runtime.vanish(id, false);
    const report = await (await fsck()).json();
    expect(report).toMatchObject({
      round: { unknown: 0, failed: 0 },
      did: expect.arrayContaining([{ sandboxId: id, what: expect.stringContaining('repaired') }]),
      findings: [
        { sandboxId: id, state: 'paused', what: 'recovered', checkpointId: expect.stringMatching(/^ckpt_/) },
      ],
    });
    expect((report as { round: { repaired: number } }).round.repaired).toBeGreaterThan(0);
    // The counts cover all organisations.
    expect((await fsck(server.keys.other)).status).toBe(403);
  });

  it('reports lost sandboxes', async () => {
    const id = await server.create();
    server.runtime.vanish(id, true);
    const { findings } = (await (await fsck()).json()) as { findings: { sandboxId: string; what: string }[] };
    expect(findings.find((one) => one.sandboxId === id)?.what).toMatch(/lost|recovered/);
  });

  it('inspects the checkpoints and reports which are missing, damaged or restored (R85, R108)', async () => {
    type Found = { checkpointId: string | null; what: string; sandboxId: string; detail: string };
    const found = async () => ((await (await fsck()).json()) as { findings: Found[] }).findings;
    const paused = async () => {
      const sandboxId = await server.create();
      const reply = await server.ask('POST', `/v1/sandboxes/${sandboxId}/pause`);
      return { sandboxId, checkpointId: reply.json().checkpoint.id as `ckpt_${string}` };
    };
    const [gone, hurt] = [await paused(), await paused()];
    server.world.store.takeAway(gone.checkpointId);
    server.world.store.damage(hurt.checkpointId, 'missing', 'memory.json');
    const findings = await found();
    expect(findings).toContainEqual(expect.objectContaining({ ...gone, what: 'missing', state: 'paused' }));
    expect(findings).toContainEqual(
      expect.objectContaining({ ...hurt, what: 'damaged', detail: expect.stringContaining('memory.json') }),
    );
    server.world.store.bringBack(gone.checkpointId);
    expect((await found()).filter(({ what }) => what === 'missing')).toEqual([]);
    expect((await fsck(server.keys.other)).status).toBe(403);
  });

  it('reports intact memory that cannot be restored here, and why', async () => {
    const sandboxId = await server.create();
    const { checkpoint } = (await server.ask('POST', `/v1/sandboxes/${sandboxId}/pause`)).json();
    const { build } = server.runtime;
    server.runtime.build = 'another build';
    try {
      const detail = `Its memory cannot be restored: made by ${build}.`;
      const { findings } = (await (await fsck()).json()) as { findings: unknown[] };
      const about = { sandboxId, checkpointId: checkpoint.id, state: 'paused' };
      expect(findings).toContainEqual({ ...about, what: 'unusable', detail });
      const verified = await server.ask('POST', `/v1/checkpoints/${checkpoint.id}/verify`);
      expect(verified.json()).toMatchObject({ health: 'ok', unusableMemory: `made by ${build}` });
    } finally {
      server.runtime.build = build;
    }
    const verified = await server.ask('POST', `/v1/checkpoints/${checkpoint.id}/verify`);
    expect(verified.json()).toMatchObject({ health: 'ok', unusableMemory: null });
  });

  it('refuses the key of a user', async () => {
    expect((await fsck(server.keys.user)).status).toBe(403);
  });
});
