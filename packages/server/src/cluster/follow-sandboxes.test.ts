import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { type Caller, type Engine, type Location, systemClock } from '@torpor/engine';
import { HopSigner } from '@torpor/gateway';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { followSandboxes } from './follow-sandboxes.ts';

const ID = 'sbx_aaaaaaaaaaaaaaaaaaaa' as SandboxId;
const secret = randomBytes(32);
const signerOf = (self: string) =>
  new HopSigner({ self, secrets: [secret], now: Date.now, randomBytes, windowMs: 30_000 });

/** The server of node b, and what it was asked. */
let server: Server;
let asked: { readonly path: string; readonly body: unknown; readonly from: unknown }[];
let answer: () => { readonly status: number; readonly body: unknown };
let b: Extract<Location, { is: 'elsewhere' }>;

beforeEach(async () => {
  asked = [];
  answer = () => ({ status: 200, body: { result: 'done at b' } });
  const signer = signerOf('b');
  server = createServer(async (request, response) => {
    const { method = '', url: target = '', headers } = request;
    const from = signer.verify(String(headers['torpor-hop']), { method, target, host: headers.host ?? '' });
    asked.push({ path: target, body: await json(request), from });
    const { status, body } = answer();
    response.writeHead(status).end(JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  b = { is: 'elsewhere', node: 'b', address };
});
afterEach(() => void server.close());

/** The engine of node a. Each look-up takes the next location; the last one stays. */
function following(locations: readonly Location[], calls: object): Engine {
  const left = [...locations];
  const directory = { self: 'a', locate: async () => (left.length > 1 ? left.shift() : left[0]) };
  const engine = { directory, ...calls } as unknown as Engine;
  const parts = { engine, clock: systemClock, signer: signerOf('a'), accessToken: () => 'token' };
  return followSandboxes(parts).engine;
}

const caller: Caller = { org: 'org', idempotencyKey: 'key', signal: new AbortController().signal };
const livesAt = (node: string) =>
  new TorporError('unreachable', `The sandbox is running on the node "${node}".`, { details: { node } });

describe('a call of the engine', () => {
  it('is made here when the sandbox is here', async () => {
    const engine = following([{ is: 'here' }], { pause: async () => 'done here' });
    expect(await engine.pause(caller, ID)).toBe('done here');
    expect(asked).toEqual([]);
  });

  it('is made on the node of the sandbox, signed, for the same caller', async () => {
    const engine = following([b], {});
    expect(await engine.pause(caller, ID, { mode: 'files' })).toBe('done at b');
    const body = { args: [{ org: 'org', idempotencyKey: 'key' }, ID, { mode: 'files' }] };
    expect(asked).toMatchObject([{ path: '/v1/cluster/engine/pause', body, from: { from: 'a' } }]);
  });

  it('follows a sandbox that has moved meanwhile', async () => {
    const engine = following([{ is: 'here' }, b], { pause: () => Promise.reject(livesAt('b')) });
    expect(await engine.pause(caller, ID)).toBe('done at b');
  });

  it('comes back when the sandbox has moved here', async () => {
    answer = () => ({ status: 503, body: { error: livesAt('a').toBody() } });
    const engine = following([b, { is: 'here' }], { pause: async () => 'done here' });
    expect(await engine.pause(caller, ID)).toBe('done here');
    expect(asked).toHaveLength(1);
  });

  it('fails as it has failed there', async () => {
    const error = new TorporError('capability_unsupported', 'It cannot.').toBody();
    answer = () => ({ status: 422, body: { error } });
    await expect(following([b], {}).pause(caller, ID)).rejects.toMatchObject({
      code: 'capability_unsupported',
      message: 'It cannot.',
    });
  });

  it('names the node that is away or does not answer', async () => {
    const away: Location = { is: 'unreachable', node: 'b', since: 0 };
    await expect(following([away], {}).pause(caller, ID)).rejects.toThrow(/node "b", which is away/);
    server.close();
    server.closeAllConnections();
    await expect(following([b], {}).pause(caller, ID)).rejects.toThrow(/node "b" does not answer/);
  });
});

describe('the state of a sandbox whose node does not answer', () => {
  it('is what the database has, and not known to be so', async () => {
    const engine = following([{ is: 'unreachable', node: 'b', since: 0 }], {
      get: async () => ({ state: 'running', evidence: 'running' }),
    });
    expect(await engine.get('org', ID)).toEqual({ state: 'running', evidence: 'unknown' });
  });
});

describe('a new sandbox', () => {
  const full = () => Promise.reject(new TorporError('capacity', 'No node can take the sandbox.'));

  it('is made on the node that placement chooses', async () => {
    const engine = following([b], { placeOf: async () => b });
    expect(await engine.create(caller, {})).toBe('done at b');
  });

  it('is the one of an earlier request with the same key, also when no node has room now', async () => {
    const engine = following([b], { placeOf: full, create: async () => 'made before' });
    expect(await engine.create(caller, {})).toBe('made before');
  });

  it('is refused with the reasons of all nodes when none has room', async () => {
    const own = () => Promise.reject(new TorporError('capacity', 'This node has no room.'));
    await expect(following([b], { placeOf: full, create: own }).create(caller, {})).rejects.toMatchObject({
      message: 'No node can take the sandbox.',
    });
  });
});
