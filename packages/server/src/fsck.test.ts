import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../testing/test-server.ts';

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
  it('finds nothing where all is well', async () => {
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
    // Its counts are those of all organisations.
    expect((await fsck(server.keys.other)).status).toBe(403);
  });

  it('says what is lost', async () => {
    const id = await server.create();
    server.runtime.vanish(id, true);
    const { findings } = (await (await fsck()).json()) as { findings: { sandboxId: string; what: string }[] };
    expect(findings.find((one) => one.sandboxId === id)?.what).toMatch(/lost|recovered/);
  });

  it('is not for the key of a user', async () => {
    expect((await fsck(server.keys.user)).status).toBe(403);
  });
});
