import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { ManualClock } from '@torpor/engine/testing';
import { TorporError } from '@torpor/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import {
  ask,
  type GatewayWorld,
  makeGatewayWorld,
  open,
  openRaw,
  type WorldOptions,
} from '../../testing/index.ts';

let world: GatewayWorld;
afterEach(() => world[Symbol.asyncDispose]());

const QUICK = { portGraceMs: 60, startingMs: 400, failureMs: 30, lookAgainMs: 5 };

async function begin(
  state: 'running' | 'paused' | 'pausing' | 'resuming' | 'creating' | 'killed' | 'lost' | 'failed',
  more: object = {},
  options: WorldOptions = {},
) {
  world = await makeGatewayWorld({ ...options, settings: { ...QUICK, ...options.settings } });
  const sandbox = world.sandboxes.make({ state, ...more });
  return {
    sandbox,
    host: world.hostOf(sandbox),
    get: (asked = {}) => ask(world.port, world.hostOf(sandbox), asked),
  };
}

const untilHeld = async (count: number) => {
  while (world.gateway.queuedRequests !== count) await new Promise(setImmediate);
};

describe('waking', () => {
  it('happens once for 200 concurrent requests, and all are answered', async () => {
    const { sandbox, get } = await begin('paused');
    sandbox.onWake = () => delay(30);
    let requests = 0;
    await world.serve(sandbox, (request, response) => {
      requests++;
      response.end(request.url);
    });
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => get({ path: `/${i}` })));
    expect(answers.map(({ status, text }) => `${status} ${text}`)).toEqual(
      answers.map((_, i) => `200 /${i}`),
    );
    expect(sandbox.wakes).toHaveLength(1);
    expect(requests).toBe(200);
    expect(world.gateway.queuedRequests).toBe(0);
  });

  it('dispatches queued requests in order of arrival', async () => {
    const { sandbox, get } = await begin('paused');
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    const seen: number[] = [];
    // The order in which the app receives the requests.
    await world.serve(sandbox, (request, response) => {
      seen.push(Number(request.url?.slice(1)));
      response.end();
    });
    const asked: Promise<unknown>[] = [];
    for (let i = 0; i < 40; i++) {
      asked.push(get({ path: `/${i}` }));
      await untilHeld(i + 1);
    }
    waking.resolve();
    await Promise.all(asked);
    expect(seen).toEqual(Array.from({ length: 40 }, (_, i) => i));
  });

  it('waits until the port of a declared service answers', async () => {
    const { sandbox, get } = await begin('paused', {
      startedAt: Date.now(),
      services: [{ name: 'web', port: 3000 }],
    });
    const asked = get();
    while (sandbox.dials < 3) await delay(5);
    await world.serve(sandbox, (_, response) => response.end('at last'));
    expect(await asked).toMatchObject({ status: 200, text: 'at last' });
  });

  it('waits for a port that has an address but refuses connections', async () => {
    const { sandbox, get } = await begin('running', {
      startedAt: Date.now(),
      services: [{ name: 'web', port: 3000 }],
    });
    const app = await world.serve(sandbox, () => {});
    const address = sandbox.ports.get(3000);
    await new Promise((resolve) => app.close(resolve));
    const asked = get();
    while (sandbox.dials < 3) await delay(5);
    await world.serve(sandbox, (_, response) => response.end('at last'));
    expect(address).toBeDefined();
    expect(await asked).toMatchObject({ status: 200, text: 'at last' });
  });

  it('does not dispatch the request of a client that has left', async () => {
    const { sandbox, host } = await begin('paused');
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    let requests = 0;
    await world.serve(sandbox, (_, response) => {
      requests++;
      response.end();
    });
    const client = await openRaw(world.port);
    client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    await untilHeld(1);
    client.socket.destroy();
    await untilHeld(0);
    waking.resolve();
    await ask(world.port, host);
    expect(requests).toBe(1);
  });

  it.each(['creating', 'resuming', 'pausing'] as const)('waits while the sandbox is %s', async (state) => {
    const { sandbox, get } = await begin(state, { autoResume: false });
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const asked = get();
    await untilHeld(1);
    await delay(20);
    world.sandboxes.become(sandbox.id, { state: 'running' });
    expect(await asked).toMatchObject({ status: 200 });
    expect(sandbox.wakes).toHaveLength(0);
  });

  it('joins a resume that another caller has started', async () => {
    const { sandbox, get } = await begin('resuming');
    await world.serve(sandbox, (_, response) => response.end('ok'));
    expect(await get()).toMatchObject({ status: 200 });
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('tries again when another operation is under way', async () => {
    const { sandbox, get } = await begin('paused');
    let times = 0;
    sandbox.onWake = async () => {
      if (++times < 3) throw new TorporError('transitioning', 'A fork is under way.');
    };
    await world.serve(sandbox, (_, response) => response.end('ok'));
    expect(await get()).toMatchObject({ status: 200 });
    expect(sandbox.wakes).toHaveLength(3);
  });

  it('that fails answers every waiting request with its cause, and is tried again later', async () => {
    const { sandbox, get } = await begin('paused');
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const asked = Promise.all([get(), get({ method: 'POST', body: 'x' })]);
    await untilHeld(2);
    waking.reject(
      new TorporError('checkpoint_missing', 'Its checkpoint is gone.', { checkpointId: 'ckpt_x' }),
    );
    const [one, two] = await asked;
    expect(one.status).toBe(409);
    expect(one.json()).toMatchObject({
      error: {
        code: 'checkpoint_missing',
        sandboxId: sandbox.id,
        checkpointId: 'ckpt_x',
        details: { dispatched: false },
      },
    });
    expect(two.status).toBe(409);
    expect(sandbox.wakes).toHaveLength(1);
    sandbox.onWake = async () => {};
    await delay(2 * QUICK.failureMs);
    expect(await get()).toMatchObject({ status: 200 });
  });
});

describe('each obstacle has its own error', () => {
  it.each([
    ['killed', 410, 'killed'],
    ['lost', 410, 'lost'],
    ['failed', 409, 'conflict'],
  ] as const)('a sandbox that is %s: %i', async (state, status, code) => {
    const { sandbox, get } = await begin(state, { reason: 'a reason' });
    const answer = await get();
    expect(answer.status).toBe(status);
    expect(answer.headers['x-request-id']).toMatch(/^req_/);
    expect(answer.json()).toMatchObject({
      error: {
        code,
        sandboxId: sandbox.id,
        requestId: answer.headers['x-request-id'],
        details: { dispatched: false, state, reason: 'a reason' },
      },
    });
    expect(sandbox.wakes).toHaveLength(0);
  });

  it('a lost sandbox: the unusable checkpoint, its location and the code (R91, R92)', async () => {
    const checkpointId = 'ckpt_bbbbbbbbbbbbbbbbbbbb';
    const lostCheckpoint = { checkpointId, location: 'file:///store/x', code: 'checkpoint_missing' } as const;
    const { get } = await begin('lost', { reason: 'a reason', lostCheckpoint });
    expect((await get()).json()).toMatchObject({
      error: {
        code: 'lost',
        checkpointId,
        details: { dispatched: false, location: 'file:///store/x', code: 'checkpoint_missing' },
      },
    });
  });

  it('an unknown id: 404', async () => {
    await begin('running');
    const { status, text } = await ask(world.port, '3000-zzzzzzzzzzzzzzzzzzzz.sbx.localhost');
    expect(status).toBe(404);
    expect(JSON.parse(text)).toMatchObject({ error: { code: 'not_found' } });
  });

  it('a paused sandbox whose autoResume is off: 409, and it stays paused', async () => {
    const { sandbox, get } = await begin('paused', { autoResume: false });
    const answer = await get();
    expect(answer.status).toBe(409);
    expect(answer.json()).toMatchObject({
      error: { code: 'conflict', hint: expect.stringContaining('autoResume'), details: { state: 'paused' } },
    });
    expect(sandbox.wakes).toHaveLength(0);
  });

  it('a closed port: 502 with the open ports', async () => {
    const { sandbox, get } = await begin('running');
    await world.serve(sandbox, () => {}, 8080);
    const answer = await get();
    expect(answer.status).toBe(502);
    expect(answer.json()).toMatchObject({
      error: { code: 'port_closed', details: { dispatched: false, port: 3000, openPorts: [8080] } },
    });
  });

  it('a service that is still starting: 503 with Retry-After', async () => {
    const services = [{ name: 'web', port: 3000 }];
    const { get } = await begin('running', { services, startedAt: Date.now() });
    const answer = await get();
    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('2');
    expect(answer.json()).toMatchObject({
      error: {
        code: 'unreachable',
        retryable: true,
        details: { dispatched: false, service: 'web', port: 3000 },
      },
    });
  });

  it('a service may take all of startingMs, counted from the start of its sandbox', async () => {
    const clock = new ManualClock();
    const services = [{ name: 'web', port: 3000 }];
    const more = { services, startedAt: clock.now() };
    const { sandbox, get } = await begin('running', more, { clock });
    const pass = async (ms: number) => {
      for (let passed = 0; passed < ms; passed += 10) {
        clock.advance(10);
        await delay(1);
      }
    };
    const asked = get();
    await untilHeld(1);
    await pass(0.8 * QUICK.startingMs);
    const isAnswered = await Promise.race([asked.then(() => true), delay(20, false)]);
    expect(isAnswered).toBe(false);
    await world.serve(sandbox, (_, response) => response.end('at last'));
    await pass(0.5 * QUICK.startingMs);
    expect(await asked).toMatchObject({ status: 200, text: 'at last' });
  });

  it('a runtime that does not answer is asked again for holdMs: 503', async () => {
    const { sandbox, get } = await begin('running', {}, { settings: { holdMs: 80 } });
    world.sandboxes.dial = async () => {
      sandbox.dials++;
      throw new TorporError('unreachable', 'The runtime does not answer.');
    };
    const answer = await get();
    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('2');
    expect(answer.json()).toMatchObject({ error: { code: 'unreachable', details: { dispatched: false } } });
    expect(sandbox.dials).toBeGreaterThan(1);
  });
});

describe('queued requests are bounded', () => {
  it('in number, per sandbox', async () => {
    const { sandbox, get } = await begin('paused', {}, { settings: { heldPerSandbox: 3 } });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const queued = [get(), get(), get()];
    await untilHeld(3);
    const refused = await get();
    expect(refused.status).toBe(503);
    expect(refused.json()).toMatchObject({
      error: { code: 'capacity', retryable: true, details: { dispatched: false } },
    });
    waking.resolve();
    for (const answer of queued) expect(await answer).toMatchObject({ status: 200 });
  });

  it('in number, overall', async () => {
    const { sandbox, get } = await begin('paused', {}, { settings: { heldOverall: 2 } });
    const other = world.sandboxes.make({ state: 'paused' });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    other.onWake = () => waking.promise;
    const queued = [get(), ask(world.port, world.hostOf(other))];
    await untilHeld(2);
    expect(await get()).toMatchObject({ status: 503 });
    waking.resolve();
    await Promise.all(queued);
  });

  it('in bytes: the body of a queued request is not read', async () => {
    const { sandbox, host, get } = await begin('paused', {}, { settings: { heldBytesPerSandbox: 200_000 } });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, async (request, response) => {
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      response.end(String(bytes));
    });
    const client = await openRaw(world.port);
    const size = 32 * 1024 * 1024;
    client.send(`PUT / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${size}\r\n\r\n`);
    await untilHeld(1);
    client.send(Buffer.alloc(size));
    const { socket } = client;
    let before = -1;
    while (before !== socket.writableLength) {
      before = socket.writableLength;
      await delay(50);
    }
    // Most of the body is still in the client's buffer.
    expect(before).toBeGreaterThan(size / 2);
    const others = Array.from({ length: 5 }, () => get({ method: 'PUT', body: 'x' }));
    expect((await Promise.race(others)).status).toBe(503);
    waking.resolve();
    await Promise.all(others);
    expect(await client.until(new RegExp(`${size}$`))).toMatch(/200 OK/);
    client.socket.destroy();
  });

  it('in time', async () => {
    const { sandbox, get } = await begin('paused', {}, { settings: { holdMs: 60 } });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    const answer = await get({ method: 'POST', body: 'x' });
    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('2');
    expect(answer.json()).toMatchObject({ error: { code: 'unreachable', details: { dispatched: false } } });
    expect(world.gateway.queuedRequests).toBe(0);
    waking.resolve();
  });

  it('a client that sends its body slowly does not hold up other requests', async () => {
    const { sandbox, host, get } = await begin('paused', {}, { settings: { holdMs: 100 } });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    const slow = await openRaw(world.port);
    slow.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 1000\r\n\r\n`);
    const dripping = setInterval(() => slow.socket.writable && slow.send('x'), 5);
    const text = await slow.closed();
    clearInterval(dripping);
    expect(text).toMatch(/^HTTP\/1\.1 503 /);
    expect(text).toMatch(/connection: close/i);
    waking.resolve();
    await world.serve(sandbox, (_, response) => response.end('ok'));
    expect(await get()).toMatchObject({ status: 200 });
  });

  it('active exchanges are bounded too', async () => {
    const { sandbox, host } = await begin('running', {}, { settings: { passingPerSandbox: 2 } });
    await world.serve(sandbox, (_, response) => void response.write('on and on'));
    const streams = [await open(world.port, host), await open(world.port, host)];
    expect(await ask(world.port, host)).toMatchObject({ status: 503 });
    for (const stream of streams) stream.destroy();
  });
});

describe('a wake that the waiting page asks for', () => {
  it('while the sandbox is being woken is over with that wake: the next pause is not undone', async () => {
    const { sandbox, get } = await begin('paused', {}, { settings: { momentMs: 20 } });
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    expect((await get({ headers: { accept: 'text/html' } })).status).toBe(503);
    waking.resolve();
    expect((await get()).status).toBe(200);
    expect(sandbox.wakes).toHaveLength(1);

    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    await gates.drain(sandbox.id, AbortSignal.timeout(100));
    await gates.abortExchanges(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    await gates.open(sandbox.id);
    await delay(50);
    expect(sandbox.wakes).toHaveLength(1);
  });
});

describe('a lease', () => {
  it('is held while bytes move, and not by a quiet stream', async () => {
    const { sandbox, host } = await begin('running', {}, { settings: { quietMs: 60 } });
    const app = Promise.withResolvers<{ write(text: string): void }>();
    await world.serve(sandbox, (_, response) => {
      response.write('first');
      app.resolve(response);
    });
    const stream = await open(world.port, host);
    await once(stream, 'data');
    stream.resume();
    while (sandbox.leases > 0) await delay(10);
    const { leasesTaken } = sandbox;
    expect(leasesTaken).toBeGreaterThan(0);
    (await app.promise).write('again');
    await once(stream, 'data');
    expect(sandbox.leasesTaken).toBe(leasesTaken + 1);
    while (sandbox.leases > 0) await delay(10);
    stream.destroy();
  });

  it('is held while a request waits for its response, however long that takes', async () => {
    const { sandbox, get } = await begin('running', {}, { settings: { quietMs: 20 } });
    const answer = Promise.withResolvers<void>();
    await world.serve(sandbox, async (_, response) => {
      await answer.promise;
      response.end('ok');
    });
    const asked = get();
    await delay(150);
    expect(sandbox.leases).toBe(1);
    answer.resolve();
    await asked;
    while (sandbox.leases > 0) await delay(10);
  });

  it('is held from the moment a request arrives', async () => {
    const { sandbox, get } = await begin('paused', {}, { settings: { quietMs: 20 } });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('ok'));
    const asked = get();
    await untilHeld(1);
    await delay(80);
    expect(sandbox.leases).toBe(1);
    waking.resolve();
    await asked;
  });
});
