import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ask, type FakeSandboxes, type GatewayWorld, makeGatewayWorld, open } from '../../testing/index.ts';

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
beforeEach(async () => {
  world = await makeGatewayWorld({ settings: { drainQuietMs: 40 } });
  sandbox = world.sandboxes.make();
  host = world.hostOf(sandbox);
});
afterEach(() => world[Symbol.asyncDispose]());

const get = (asked: Parameters<typeof ask>[2] = {}) => ask(world.port, host, asked);
const forever = new AbortController().signal;
const untilHeld = async (count: number) => {
  while (world.gateway.queuedRequests !== count) await new Promise(setImmediate);
};

describe('a pause', () => {
  it('queues new requests as soon as the gate is closed, also on open connections', async () => {
    let requests = 0;
    await world.serve(sandbox, (_, response) => {
      requests++;
      response.end('ok');
    });
    await get();
    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    const queued = [get(), get({ method: 'POST', body: 'x' })];
    await untilHeld(2);
    expect(requests).toBe(1);
    await gates.abortExchanges(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    await gates.open(sandbox.id);
    for (const answer of queued) expect(await answer).toMatchObject({ status: 200 });
    expect(sandbox.wakes).toHaveLength(1);
    expect(requests).toBe(3);
  });

  it('waits for requests that the app has not answered', async () => {
    const answer = Promise.withResolvers<void>();
    const inside = Promise.withResolvers<void>();
    await world.serve(sandbox, async (_, response) => {
      inside.resolve();
      await answer.promise;
      response.end('whole');
    });
    const asked = get();
    await inside.promise;
    await world.gateway.gates.close(sandbox.id);
    let isDrained = false;
    const drained = world.gateway.gates.drain(sandbox.id, forever).then(() => {
      isDrained = true;
    });
    await delay(100);
    expect(isDrained).toBe(false);
    answer.resolve();
    await drained;
    expect(await asked).toMatchObject({ status: 200, text: 'whole' });
    await world.gateway.gates.open(sandbox.id);
  });

  it('does not wait for quiet streams', async () => {
    await world.serve(sandbox, (_, response) => void response.write('data: 1\n\n'));
    const stream = await open(world.port, host);
    stream.on('error', () => {});
    await once(stream, 'data');
    await world.gateway.gates.close(sandbox.id);
    await world.gateway.gates.drain(sandbox.id, forever);
    const broken = new Promise((resolve) => stream.on('close', resolve));
    await world.gateway.gates.abortExchanges(sandbox.id);
    await broken;
    expect(stream.complete).toBe(false);
    await world.gateway.gates.open(sandbox.id);
  });

  it('answers the requests that it aborts with dispatched: true', async () => {
    const inside = Promise.withResolvers<void>();
    const reset = Promise.withResolvers<void>();
    await world.serve(sandbox, (request) => {
      request.on('close', reset.resolve);
      inside.resolve();
    });
    const asked = get({ method: 'POST', body: 'x' });
    await inside.promise;
    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    await gates.drain(sandbox.id, AbortSignal.timeout(20));
    await gates.abortExchanges(sandbox.id);
    const { status, headers, text } = await asked;
    expect(status).toBe(503);
    expect(headers['retry-after']).toBe('1');
    expect(JSON.parse(text)).toMatchObject({
      error: { code: 'unreachable', retryable: false, sandboxId: sandbox.id, details: { dispatched: true } },
    });
    await reset.promise;
    await gates.open(sandbox.id);
  });

  it('answers with dispatched: true also when the sandbox resets its connections first', async () => {
    const inside = Promise.withResolvers<Socket>();
    await world.serve(sandbox, ({ socket }) => inside.resolve(socket));
    const asked = get({ method: 'POST', body: 'x' });
    const socket = await inside.promise;
    await world.gateway.gates.close(sandbox.id);
    socket.resetAndDestroy();
    const answer = await asked;
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({ error: { code: 'unreachable', details: { dispatched: true } } });
    await world.gateway.gates.open(sandbox.id);
  });

  it('closes idle connections too', async () => {
    const closed = Promise.withResolvers<void>();
    await world.serve(sandbox, (request, response) => {
      request.socket.on('close', () => closed.resolve());
      response.end('ok');
    });
    await get();
    await world.gateway.gates.close(sandbox.id);
    await world.gateway.gates.abortExchanges(sandbox.id);
    await closed.promise;
    await world.gateway.gates.open(sandbox.id);
  });

  it('that fails dispatches queued requests without a wake', async () => {
    await world.serve(sandbox, (_, response) => response.end('ok'));
    await world.gateway.gates.close(sandbox.id);
    const queued = get();
    await untilHeld(1);
    await world.gateway.gates.open(sandbox.id);
    expect(await queued).toMatchObject({ status: 200 });
    expect(sandbox.wakes).toHaveLength(0);
  });

  it('of one sandbox does not affect another', async () => {
    const other = world.sandboxes.make();
    await world.serve(other, (_, response) => response.end('other'));
    await world.gateway.gates.close(sandbox.id);
    expect(await ask(world.port, world.hostOf(other))).toMatchObject({ status: 200, text: 'other' });
    await world.gateway.gates.open(sandbox.id);
  });

  it('right after a wake dispatches the requests that waited for the wake, and queues later ones', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const seen: string[] = [];
    await world.serve(sandbox, (request, response) => {
      seen.push(request.url ?? '');
      response.end('ok');
    });
    // The address is known only after the gate was closed again.
    const way = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const { dial } = world.sandboxes;
    world.sandboxes.dial = async (...there) => {
      asked.resolve();
      await way.promise;
      return dial.apply(world.sandboxes, there);
    };
    const earlier = [get({ path: '/earlier' }), get({ path: '/earlier' })];
    await untilHeld(2);
    await asked.promise;
    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    const drained = gates.drain(sandbox.id, forever);
    const later = get({ path: '/later' });
    await untilHeld(3);
    way.resolve();
    await drained;
    for (const answer of earlier) expect(await answer).toMatchObject({ status: 200 });
    expect(seen).toEqual(['/earlier', '/earlier']);
    await gates.abortExchanges(sandbox.id);
    await gates.open(sandbox.id);
    expect(await later).toMatchObject({ status: 200 });
  });

  it('does not wait for requests at a closed port', async () => {
    world.sandboxes.become(sandbox.id, { services: [{ name: 'web', port: 3000 }], startedAt: Date.now() });
    const asked = get();
    while (sandbox.dials < 3) await delay(5);
    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    await gates.drain(sandbox.id, forever);
    await world.serve(sandbox, (_, response) => response.end('at last'));
    await gates.abortExchanges(sandbox.id);
    await gates.open(sandbox.id);
    expect(await asked).toMatchObject({ status: 200, text: 'at last' });
  });

  it('during a wake: queued requests are answered later', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const asked = get();
    await untilHeld(1);
    await world.gateway.gates.close(sandbox.id);
    waking.resolve();
    await delay(20);
    await world.gateway.gates.abortExchanges(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    sandbox.onWake = async () => {};
    await world.gateway.gates.open(sandbox.id);
    expect(await asked).toMatchObject({ status: 200 });
  });

  it('that ends with a kill answers queued requests with 410', async () => {
    await world.gateway.gates.close(sandbox.id);
    const queued = get();
    await untilHeld(1);
    world.sandboxes.become(sandbox.id, { state: 'killed' });
    await world.gateway.gates.open(sandbox.id);
    expect(await queued).toMatchObject({ status: 410 });
  });

  it('thirty times under steady traffic: every request is answered, and runs once', async () => {
    const runs = new Map<string, number>();
    await world.serve(sandbox, async (request, response) => {
      const name = request.url ?? '';
      runs.set(name, (runs.get(name) ?? 0) + 1);
      await delay(Math.random() * 5);
      response.end(name);
    });
    let isOver = false;
    let answered = 0;
    const traffic = Promise.all(
      Array.from({ length: 10 }, async (_, hand) => {
        let sent = 0;
        for (; !isOver; sent++) {
          const name = `/${hand}/${sent}`;
          const { status, text } = await get({ path: name, method: sent % 2 === 0 ? 'GET' : 'POST' });
          expect({ status, text }).toEqual({ status: 200, text: name });
          answered++;
        }
        return sent;
      }),
    );
    const { gates } = world.gateway;
    for (let i = 0; i < 30; i++) {
      // Before each pause at least one request was answered, and others are under way.
      const before = answered;
      while (answered === before) await delay(1);
      await gates.close(sandbox.id);
      await gates.drain(sandbox.id, forever);
      await gates.abortExchanges(sandbox.id);
      world.sandboxes.become(sandbox.id, { state: 'paused' });
      await gates.open(sandbox.id);
    }
    isOver = true;
    const sent = (await traffic).reduce((sum, count) => sum + count, 0);
    expect(sent).toBeGreaterThan(30);
    expect(runs.size).toBe(sent);
    expect(new Set(runs.values())).toEqual(new Set([1]));
  });
});

describe('a server that stops', () => {
  it('refuses waiting requests, waits for active ones, and aborts those that do not end', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const other = world.sandboxes.make();
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    const answer = Promise.withResolvers<void>();
    let inside = 0;
    await world.serve(other, async (request, response) => {
      inside++;
      if (request.url === '/never') return;
      await answer.promise;
      response.end('whole');
    });
    const queued = get();
    const never = ask(world.port, world.hostOf(other), { path: '/never' });
    const finishing = ask(world.port, world.hostOf(other));
    await untilHeld(1);
    while (inside < 2) await delay(1);
    const leaving = new AbortController();
    const stopped = world.gateway.stop(leaving.signal);
    expect(await queued).toMatchObject({ status: 503 });
    expect((await queued).json()).toMatchObject({ error: { details: { dispatched: false } } });
    answer.resolve();
    expect(await finishing).toMatchObject({ status: 200, text: 'whole' });
    expect(await get()).toMatchObject({ status: 503 });
    leaving.abort();
    await stopped;
    expect((await never).json()).toMatchObject({ error: { details: { dispatched: true } } });
    waking.resolve();
  });
});

describe('gates', () => {
  it('are removed without traffic, and are not created for sandboxes that do not exist', async () => {
    await using quick = await makeGatewayWorld({ settings: { quietMs: 10, idleConnectionMs: 10 } });
    const { gates } = quick.gateway;
    const one = quick.sandboxes.make();
    const asleep = quick.sandboxes.make({ state: 'paused', preview: 'private' });
    await quick.serveRaw(one, (socket) => {
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
    });
    expect((await ask(quick.port, quick.hostOf(one))).status).toBe(200);
    expect((await ask(quick.port, quick.hostOf(asleep))).status).toBe(403);
    expect((await ask(quick.port, '3000-zzzzzzzzzzzzzzzzzzzz.sbx.localhost')).status).toBe(404);
    while (gates.size > 0) await delay(10);
  });
});
