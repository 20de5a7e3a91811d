/**
 * The signature of a request, as Standard Webhooks (standardwebhooks.com) defines it: receivers have libraries that check it
 * in most languages.
 */
import { createHmac } from 'node:crypto';
import type { WebhookId } from '@torpor/protocol';

/** Derived from the server's secret, so that no table and no replayed answer holds it. */
export function secretOf(serverSecret: Uint8Array, id: WebhookId): Uint8Array {
  return createHmac('sha256', serverSecret).update(`webhook ${id}`).digest();
}

/** The secret as its owner sees it. */
export function secretText(secret: Uint8Array): string {
  return `whsec_${Buffer.from(secret).toString('base64')}`;
}

/** `id` stays the same when the message is sent again; `now` does not, so that an old request cannot be replayed. */
export function signedHeaders(
  secret: Uint8Array,
  id: string,
  now: number,
  body: string,
): Readonly<Record<string, string>> {
  const timestamp = String(Math.floor(now / 1_000));
  const digest = createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64');
  return {
    'content-type': 'application/json',
    'user-agent': 'torpor-webhooks',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${digest}`,
  };
}
