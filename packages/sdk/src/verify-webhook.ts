/** Checks that a request to a webhook receiver comes from the server and is not an old one. */
import { type EventView, eventViewSchema, TorporError } from '@torpor/protocol';

export interface WebhookRequest {
  /** The headers of the request, as `Headers` or as Node's object. */
  readonly headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The body exactly as it arrived, before any parsing. */
  readonly body: string;
}

export interface VerifyOptions {
  /** How old a request may be. Default: five minutes. */
  readonly toleranceMs?: number;
  readonly now?: () => number;
}

const FIVE_MINUTES_MS = 300_000;

/**
 * The event of a request, or undefined for a test request. Throws `unauthenticated` when the signature is wrong or the
 * request is too old.
 *
 * ```ts
 * const event = await verifyWebhook(secret, { headers: request.headers, body: await readText(request) });
 * ```
 */
export async function verifyWebhook(
  secret: string,
  { headers, body }: WebhookRequest,
  { toleranceMs = FIVE_MINUTES_MS, now = Date.now }: VerifyOptions = {},
): Promise<EventView | undefined> {
  const id = headerOf(headers, 'webhook-id');
  const timestamp = headerOf(headers, 'webhook-timestamp');
  const signatures = headerOf(headers, 'webhook-signature').split(' ');
  const message = new TextEncoder().encode(`${id}.${timestamp}.${body}`);
  const key = await crypto.subtle.importKey(
    'raw',
    fromBase64(secret.replace(/^whsec_/, '')),
    { name: 'HMAC', hash: 'SHA-256' },
    false,
    ['verify'],
  );
  const given = signatures.filter((one) => one.startsWith('v1,')).map((one) => fromBase64(one.slice(3)));
  const checks = given.map((signature) => crypto.subtle.verify('HMAC', key, signature, message));
  if (!(await Promise.all(checks)).includes(true)) throw refused('The signature of the request is wrong.');
  if (Math.abs(now() - Number(timestamp) * 1_000) > toleranceMs) throw refused('The request is too old.');
  const parsed = eventViewSchema.safeParse(JSON.parse(body));
  return parsed.success ? parsed.data : undefined;
}

function headerOf(headers: WebhookRequest['headers'], name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  if (typeof value === 'string' && value !== '') return value;
  throw refused(`The request has no header ${name}.`);
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    throw refused('The secret or the signature is not valid base64.');
  }
}

function refused(message: string): TorporError {
  return new TorporError('unauthenticated', message, { hint: 'Do not act on the request.' });
}
