/** Webhooks to a receiver that is a real HTTP server: it fails, hangs, goes away and comes back. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { EventView } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ORG, type WebhookWorld, webhookWorld } from '../testing/webhook-world.ts';
import { AddressCheck } from './address-check.ts';
import { sendRequest } from './send.ts';
import { DEFAULT_WEBHOOK_SETTINGS } from './settings.ts';
import type { Webhooks } from './webhooks.ts';

const { requestMs, noticeAtLeastEveryMs } = DEFAULT_WEBHOOK_SETTINGS;

let hooks: WebhookWorld;
let webhooks: Webhooks;
let receiver: Server;
let port = 0;
let mode: 'accepts' | 'fails' | 'hangs' = 'accepts';
/** The number of requests in each mode. */
const requests = { accepts: 0, fails: 0, hangs: 0 };
/** Requests that the server has sent and that have not ended. */
let underWay = 0;
/** The events that were answered with success. */
const accepted: EventView[] = [];

async function listen(): Promise<void> {
  receiver = createServer(async (request, response) => {
    const event = JSON.parse(await text(request)) as EventView;
    requests[mode] += 1;
    if (mode === 'hangs') return;
    if (mode === 'fails') return void response.writeHead(503).end();
    accepted.push(event);
    response.writeHead(200).end();
  });
  receiver.listen(port, '127.0.0.1');
  await once(receiver, 'listening');
  port = (receiver.address() as AddressInfo).port;
}

async function goAway(): Promise<void> {
  receiver.closeAllConnections();
  receiver.close();
  await once(receiver, 'close');
}

beforeEach(async () => {
  hooks = await webhookWorld('sqlite');
  await hooks.webhooks.stop();
  const check = new AddressCheck({ allowed: ['127.0.0.1/32'], clock: hooks.world.clock });
  const send = sendRequest(check);
  const counted: typeof send = async (request) => {
    underWay += 1;
    return send(request).finally(() => {
      underWay -= 1;
    });
  };
  webhooks = await hooks.another({ check, send: counted });
  await listen();
});
afterEach(async () => {
  await hooks.dispose();
  await goAway();
});

/**
 * Waits for the assertion while the time passes, in steps in which the server looks for due retries. No time passes while a
 * request is answered: on a busy machine the server would give it up and send the same event again.
 */
const passingTime = (assertion: () => void | Promise<void>) =>
  vi.waitFor(
    async () => {
      if (underWay === 0 || mode === 'hangs') hooks.world.clock.advance(noticeAtLeastEveryMs);
      await assertion();
    },
    { timeout: 20_000, interval: 10 },
  );

/** The last failure, as the view of the webhook shows it. */
const errorOf = async (id: Parameters<Webhooks['get']>[1]) =>
  JSON.stringify((await webhooks.get(ORG, id)).error);

describe('a receiver that fails, hangs, goes away and comes back', () => {
  it('gets every event once per position, in order for each sandbox', async () => {
    const { id } = await webhooks.create(ORG, { url: `http://127.0.0.1:${port}/hook` });
    const first = await hooks.sandbox();
    await passingTime(() => expect(accepted.length).toBeGreaterThan(0));

    mode = 'fails';
    await hooks.world.engine.pause({ org: ORG }, first);
    await hooks.sandbox();
    await passingTime(() => expect(requests.fails).toBeGreaterThan(2));
    expect(await errorOf(id)).toMatch(/503/);

    mode = 'hangs';
    await hooks.sandbox();
    await passingTime(() => expect(requests.hangs).toBeGreaterThan(1));
    hooks.world.clock.advance(requestMs);
    await passingTime(async () => expect(await errorOf(id)).not.toMatch(/503/));

    await goAway();
    await hooks.sandbox();
    await passingTime(async () => expect(await errorOf(id)).toMatch(/ECONNREFUSED/));

    mode = 'accepts';
    await listen();
    await hooks.world.engine.resume({ org: ORG }, first);
    const positions = (await hooks.ledger()).map(({ position }) => position);
    await passingTime(() =>
      expect(accepted.map(({ position }) => position).sort((a, b) => a - b)).toEqual(positions),
    );
    await passingTime(async () =>
      expect(await webhooks.get(ORG, id)).toMatchObject({ waiting: 0, dead: 0, error: null }),
    );
    for (const sandbox of new Set(accepted.map(({ sandboxId }) => sandboxId))) {
      const inOrder = accepted.filter(({ sandboxId }) => sandboxId === sandbox).map(({ seq }) => seq);
      expect(inOrder).toEqual([...inOrder].sort((a, b) => a - b));
    }
  });
});
