import { createHmac } from 'node:crypto';
import { databaseKinds } from '@torpor/engine/testing';
import { type EventView, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ORG, URL_OF_RECEIVER, type WebhookWorld, webhookWorld } from '../testing/webhook-world.ts';
import type { WebhookPoint } from './deliverer.ts';
import { DEFAULT_WEBHOOK_SETTINGS } from './settings.ts';

const { giveUpMs, noticeAtLeastEveryMs } = DEFAULT_WEBHOOK_SETTINGS;
const caller = { org: ORG };

/** Asserts that every accepted event came after the earlier events of its sandbox, apart from repetitions. */
function expectInOrder(world: WebhookWorld): void {
  for (const positions of world.receiver.bySandbox().values()) {
    const first = positions.filter((position, at) => positions.indexOf(position) === at);
    expect(first).toEqual([...first].sort((a, b) => a - b));
  }
}

const until = (assertion: () => void | Promise<void>) =>
  vi.waitFor(assertion, { timeout: 10_000, interval: 5 });

describe.each(databaseKinds)('webhooks on %s', (kind) => {
  let hooks: WebhookWorld;
  beforeEach(async () => {
    hooks = await webhookWorld(kind);
  });
  afterEach(() => hooks.dispose());

  /** Waits for the assertion while the time passes, in steps in which the server looks for due retries. */
  const passingTime = (assertion: () => void | Promise<void>) =>
    until(async () => {
      hooks.world.clock.advance(noticeAtLeastEveryMs);
      await assertion();
    });
  const allPositions = async () => (await hooks.ledger()).map(({ position }) => position);

  it('deliver every new event once, in order for each sandbox, with a signature over timestamp and body', async () => {
    await hooks.sandbox();
    const { id, secret, position } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    expect(position).toBe((await allPositions()).at(-1));
    const [one, two] = [await hooks.sandbox(), await hooks.sandbox()];
    await hooks.world.engine.pause(caller, one);
    await hooks.world.engine.kill(caller, two);
    const expected = (await allPositions()).filter((each) => each > position);
    await until(() => expect(hooks.receiver.positions().sort((a, b) => a - b)).toEqual(expected));
    expectInOrder(hooks);

    const request = hooks.receiver.requests[0];
    const headers = request?.headers ?? {};
    const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${request?.body}`;
    const signature = createHmac('sha256', key).update(signed).digest('base64');
    expect(headers['webhook-signature']).toBe(`v1,${signature}`);
    expect(headers['webhook-id']).toBe((JSON.parse(request?.body ?? '') as EventView).id);
    await until(async () =>
      expect(await hooks.webhooks.get(ORG, id)).toMatchObject({ waiting: 0, error: null }),
    );
  });

  it('deliver only the events of their filter', async () => {
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER, events: ['sandbox.paused', 'checkpoint.*'] });
    const id = await hooks.sandbox();
    await hooks.world.engine.pause(caller, id);
    await until(() => expect(hooks.receiver.accepted.map(({ type }) => type)).toEqual(['sandbox.paused']));
  });

  it('send an event again until the receiver accepts it, and keep later events of its sandbox back', async () => {
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    let failures = 0;
    hooks.receiver.answer = () => (failures++ < 3 ? 500 : 200);
    await hooks.sandbox();
    const expected = await allPositions();
    await passingTime(() => expect(hooks.receiver.positions()).toEqual(expected));
    expect(hooks.receiver.requests.length).toBe(expected.length + 3);
  });

  it('deliver events of other sandboxes while the receiver hangs on one', async () => {
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    const hanging = await hooks.sandbox();
    const free = Promise.withResolvers<number>();
    hooks.receiver.answer = ({ sandboxId }) => (sandboxId === hanging ? free.promise : 200);
    await hooks.world.engine.pause(caller, hanging);
    const other = await hooks.sandbox();
    const expected = (await hooks.ledger()).filter(({ sandboxId }) => sandboxId === other);
    await until(() => expect(hooks.receiver.bySandbox().get(other)).toHaveLength(expected.length));
    free.resolve(200);
    const all = await allPositions();
    await until(() => expect(hooks.receiver.positions()).toHaveLength(all.length));
    expectInOrder(hooks);
  });

  it('give an event up after a time, list it as a dead letter, and send it again in a replay', async () => {
    const { id } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER, events: ['sandbox.started'] });
    hooks.receiver.answer = () => 500;
    await hooks.sandbox();
    await until(async () => expect((await hooks.webhooks.get(ORG, id)).error).not.toBeNull());
    hooks.world.clock.advance(giveUpMs);
    await passingTime(async () =>
      expect(await hooks.webhooks.get(ORG, id)).toMatchObject({ waiting: 0, dead: 1 }),
    );
    const [letter] = (await hooks.webhooks.deadLetters(ORG, id, 0, 10)).items;
    expect(letter).toMatchObject({ type: 'sandbox.started', tries: 2, error: 'The receiver answered 500.' });

    hooks.receiver.answer = () => 200;
    await hooks.webhooks.replay(ORG, id, letter?.position ?? 0);
    await until(() => expect(hooks.receiver.positions()).toEqual([letter?.position]));
    await until(async () => expect(await hooks.webhooks.get(ORG, id)).toMatchObject({ waiting: 0, dead: 0 }));
  });

  it('replay from a position in order, and never skip an event', async () => {
    const { id } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    const sandbox = await hooks.sandbox();
    await hooks.world.engine.pause(caller, sandbox);
    const all = await allPositions();
    await until(() => expect(hooks.receiver.positions()).toEqual(all));
    const from = all[2] ?? 0;
    await hooks.webhooks.replay(ORG, id, from);
    await until(() =>
      expect(hooks.receiver.positions()).toEqual([...all, ...all.filter((each) => each >= from)]),
    );
    await expect(hooks.webhooks.replay(ORG, id, (all.at(-1) ?? 0) + 1)).rejects.toMatchObject({
      code: 'invalid_request',
    });
  });

  it('go on without a gap and in order after the server was killed at any point', async () => {
    const points: readonly WebhookPoint[] = ['webhook.planned', 'webhook.sent', 'webhook.recorded'];
    await hooks.webhooks.stop();
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    for (const point of points) {
      for (const passes of [1, 3]) {
        // What the killed server does after the point never happens: its promise stays pending, and its writes fail.
        let left = passes;
        let killed = false;
        const never = new Promise<never>(() => {});
        const reached = Promise.withResolvers<void>();
        await hooks.doomed({
          atFaultPoint: (passed) => {
            if (killed) return never;
            if (passed !== point || --left > 0) return;
            killed = true;
            reached.resolve();
            return never;
          },
          send: (request) => (killed ? never : hooks.receiver.send(request)),
        });
        const sandbox = await hooks.sandbox();
        await hooks.world.engine.pause(caller, sandbox);
        await reached.promise;
        const next = await hooks.another();
        const all = await allPositions();
        await until(() => expect(new Set(hooks.receiver.positions())).toEqual(new Set(all)));
        expectInOrder(hooks);
        await next.stop();
      }
    }
  });

  it('are sent by one server at a time', async () => {
    const other = await hooks.another({ alone: false });
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    await hooks.sandbox();
    const all = await allPositions();
    await until(() => expect(hooks.receiver.positions().sort((a, b) => a - b)).toEqual(all));
    await other.stop();
    expect(hooks.receiver.requests).toHaveLength(all.length);
  });

  it('deliver events of other sandboxes when the failing events of one fill the window', async () => {
    await hooks.webhooks.stop();
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    const failing = await hooks.sandbox();
    await hooks.world.engine.pause(caller, failing);
    await hooks.world.engine.resume(caller, failing);
    const other = await hooks.sandbox();
    hooks.receiver.answer = ({ sandboxId }) => (sandboxId === failing ? 500 : 200);
    await hooks.another({ settings: { ...DEFAULT_WEBHOOK_SETTINGS, window: 3 } });
    const expected = (await hooks.ledger()).filter(({ sandboxId }) => sandboxId === other);
    await passingTime(() => expect(hooks.receiver.bySandbox().get(other)).toHaveLength(expected.length));
  });

  it('pause before they send an event again whose delivery could not be recorded', async () => {
    await hooks.webhooks.stop();
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER, events: ['sandbox.started'] });
    await hooks.sandbox();
    const refusing = await hooks.another({
      atFaultPoint: (point) => {
        if (point === 'webhook.sent') throw new Error('The disk is full.');
      },
    });
    await until(() => expect(hooks.receiver.requests.length).toBe(1));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(hooks.receiver.requests.length).toBe(1);
    await passingTime(() => expect(hooks.receiver.requests.length).toBeGreaterThan(1));
    await refusing.stop();
  });

  it('keep at most a window of rows and deliver the rest of the ledger afterwards', async () => {
    await hooks.webhooks.stop();
    const { id } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    for (let n = 0; n < 5; n++) await hooks.sandbox();
    const free = Promise.withResolvers<number>();
    hooks.receiver.answer = () => free.promise;
    const small = await hooks.another({ settings: { ...DEFAULT_WEBHOOK_SETTINGS, window: 3 } });
    await until(() => expect(hooks.receiver.requests.length).toBeGreaterThan(0));
    expect((await small.get(ORG, id)).waiting).toBeLessThanOrEqual(3);
    free.resolve(200);
    const all = await allPositions();
    await until(() => expect(hooks.receiver.positions()).toHaveLength(all.length));
  });
});

describe('a webhook', () => {
  let hooks: WebhookWorld;
  beforeEach(async () => {
    hooks = await webhookWorld('sqlite', { perOrg: 1 });
  });
  afterEach(() => hooks.dispose());

  it('of another organisation is not found', async () => {
    const { id } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    const asked = [
      hooks.webhooks.get('other', id),
      hooks.webhooks.delete('other', id),
      hooks.webhooks.replay('other', id, 1),
      hooks.webhooks.test('other', id),
      hooks.webhooks.deadLetters('other', id, 0, 1),
    ];
    for (const each of asked) await expect(each).rejects.toMatchObject({ code: 'not_found' });
  });

  it('beyond the limit of its organisation is refused', async () => {
    await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    await expect(hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER })).rejects.toMatchObject({
      code: 'quota_exceeded',
    });
  });

  it.each([
    'http://127.0.0.1/',
    'http://[::1]/',
    'http://2130706433/',
    'http://10.0.0.1/',
    'http://169.254.169.254/',
  ])('for the forbidden address %s is refused when it is created', async (url) => {
    await expect(hooks.webhooks.create(ORG, { url })).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('can be tested without an event', async () => {
    const { id } = await hooks.webhooks.create(ORG, { url: URL_OF_RECEIVER });
    expect(await hooks.webhooks.test(ORG, id)).toMatchObject({ delivered: true, status: 204, error: null });
    hooks.receiver.answer = () => 404;
    expect(await hooks.webhooks.test(ORG, id)).toMatchObject({ delivered: false, status: 404 });
    hooks.receiver.answer = () => Promise.reject(new TorporError('unreachable', 'It is away.'));
    expect(await hooks.webhooks.test(ORG, id)).toMatchObject({
      delivered: false,
      status: null,
      error: 'It is away.',
    });
  });
});
