import { createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { verifyWebhook } from './verify-webhook.ts';

const KEY = Buffer.alloc(32, 1);
const SECRET = `whsec_${KEY.toString('base64')}`;
const NOW = 1_700_000_000_000;
const options = { now: () => NOW };
const EVENT = {
  id: 'evt_aaaaaaaaaaaaaaaaaaaa',
  sandboxId: 'sbx_aaaaaaaaaaaaaaaaaaaa',
  seq: 1,
  position: 7,
  at: NOW,
  type: 'sandbox.killed',
  previousState: 'killing',
  state: 'killed',
  generation: 1,
  checkpointId: null,
  operationId: null,
  data: {},
};

function requestWith(body: string, at = NOW) {
  const timestamp = String(Math.floor(at / 1_000));
  const signature = createHmac('sha256', KEY).update(`evt_1.${timestamp}.${body}`).digest('base64');
  return {
    headers: {
      'webhook-id': 'evt_1',
      'webhook-timestamp': timestamp,
      'webhook-signature': `v1,${signature}`,
    },
    body,
  };
}

describe('verifyWebhook', () => {
  it('returns the event of a request with the right signature', async () => {
    const request = requestWith(JSON.stringify(EVENT));
    expect(await verifyWebhook(SECRET, request, options)).toEqual(EVENT);
    const headers = new Headers(request.headers);
    expect(await verifyWebhook(SECRET, { ...request, headers }, options)).toEqual(EVENT);
  });

  it('returns undefined for a test request', async () => {
    expect(await verifyWebhook(SECRET, requestWith('{"type":"webhook.test"}'), options)).toBeUndefined();
  });

  it.each([
    ['another body', { ...requestWith('{}'), body: '{"a":1}' }],
    ['an old request', requestWith('{}', NOW - 301_000)],
    ['a request of the future', requestWith('{}', NOW + 301_000)],
    ['no signature', { ...requestWith('{}'), headers: { 'webhook-id': 'x', 'webhook-timestamp': '1' } }],
  ])('refuses %s', async (_, request) => {
    await expect(verifyWebhook(SECRET, request, options)).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  it('refuses the signature of another secret', async () => {
    const other = `whsec_${Buffer.alloc(32, 2).toString('base64')}`;
    await expect(verifyWebhook(other, requestWith('{}'), options)).rejects.toMatchObject({
      code: 'unauthenticated',
    });
  });
});
