/** The entry point for the server: the webhooks of all organisations. Start reading at `deliverer.ts`. */
import { type Ids, lockOrg, NotificationSubscription } from '@torpor/engine';
import {
  type CreatedWebhook,
  type CreateWebhookRequest,
  type DeadLetter,
  type Page,
  pageOf,
  TorporError,
  type WebhookId,
  type WebhookTest,
  type WebhookView,
} from '@torpor/protocol';
import type { AddressCheck } from './address-check.ts';
import { Deliverer, type DelivererContext, messageOf, sendWithin, type WebhookPoint } from './deliverer.ts';
import { listDeadLetters } from './delivery.ts';
import { secretOf, secretText, signedHeaders } from './signature.ts';
import {
  allWebhookIds,
  countWebhooks,
  deleteWebhook,
  getWebhook,
  insertWebhook,
  listWebhooks,
  releaseAllLeases,
  requestReplay,
  viewWebhook,
} from './webhook.ts';

export type { WebhookPoint };

export interface WebhooksParts extends Omit<DelivererContext, 'stopping' | 'notifications' | 'engine'> {
  readonly engine: DelivererContext['engine'] & {
    newest(cursor: { readonly org: string; readonly afterPosition: number }): Promise<number>;
  };
  readonly ids: Ids;
  readonly check: AddressCheck;
  /** True when no other server uses the database. */
  readonly alone: boolean;
}

export class Webhooks {
  readonly #parts: WebhooksParts;
  readonly #ctx: DelivererContext;
  readonly #stopping = new AbortController();
  readonly #running = new Map<WebhookId, Promise<void>>();
  #supervising: Promise<void> | undefined;

  constructor(parts: WebhooksParts) {
    const notifications = new NotificationSubscription(parts.clock, parts.settings.noticeAtLeastEveryMs);
    this.#parts = parts;
    this.#ctx = { ...parts, notifications, stopping: this.#stopping.signal };
  }

  async start(options: { readonly deliver: boolean } = { deliver: true }): Promise<void> {
    const { db, notifications } = this.#ctx;
    await notifications.start(db);
    if (!options.deliver) return;
    if (this.#parts.alone) await db.transaction(releaseAllLeases);
    this.#supervising = this.#supervise();
  }

  /** Finishes the requests under way. The next start continues with the rest. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#supervising;
    await Promise.all(this.#running.values());
    await this.#ctx.notifications.stop();
  }

  /** The secret is in this answer only. */
  async create(org: string, request: CreateWebhookRequest): Promise<CreatedWebhook> {
    const { db, ids, clock, engine, check, settings, serverSecret } = this.#parts;
    const { url, events = [], afterPosition } = request;
    refuseForbiddenLiteral(check, new URL(url));
    const newest = await engine.newest({ org, afterPosition: 0 });
    if (afterPosition !== undefined && afterPosition > newest) throw beyondLedger(afterPosition, newest);
    const id = ids.next('hook');
    const position = afterPosition ?? newest;
    await db.transaction(async (tx) => {
      // The lock keeps the count right, and the organisation from being deleted meanwhile.
      if ((await lockOrg(tx, org)) === undefined)
        throw new TorporError('not_found', `There is no organisation "${org}".`);
      const used = await countWebhooks(tx, org);
      if (used >= settings.perOrg) throw tooMany(settings.perOrg, used);
      await insertWebhook(tx, { id, org, url, events, position, replayFrom: null, createdAt: clock.now() });
      tx.notify('ledger');
    });
    return { ...(await viewWebhook(db, org, id)), secret: secretText(secretOf(serverSecret, id)) };
  }

  get(org: string, id: WebhookId): Promise<WebhookView> {
    return viewWebhook(this.#ctx.db, org, id);
  }

  async list(org: string, cursor: string, limit: number): Promise<Page<WebhookView>> {
    return pageOf(await listWebhooks(this.#ctx.db, org, cursor, limit + 1), limit, ({ id }) => id);
  }

  async delete(org: string, id: WebhookId): Promise<WebhookView> {
    const view = await viewWebhook(this.#ctx.db, org, id);
    await this.#ctx.db.transaction((tx) => deleteWebhook(tx, id));
    return view;
  }

  /** Sends the events from this position on again, in order. Dead letters from there on are sent again too. */
  async replay(org: string, id: WebhookId, fromPosition: number): Promise<WebhookView> {
    const { db, engine } = this.#parts;
    await getWebhook(db, org, id);
    const newest = await engine.newest({ org, afterPosition: 0 });
    if (fromPosition > newest) throw beyondLedger(fromPosition, newest);
    await db.transaction(async (tx) => {
      await requestReplay(tx, id, fromPosition);
      tx.notify('ledger');
    });
    return viewWebhook(db, org, id);
  }

  /** Oldest first; cursors are positions. */
  async deadLetters(
    org: string,
    id: WebhookId,
    afterPosition: number,
    limit: number,
  ): Promise<Page<DeadLetter>> {
    await getWebhook(this.#ctx.db, org, id);
    const found = await listDeadLetters(this.#ctx.db, id, afterPosition, limit + 1);
    return pageOf(found, limit, ({ position }) => String(position));
  }

  /** Sends one request that is no event, now, and says what the receiver answered. */
  async test(org: string, id: WebhookId): Promise<WebhookTest> {
    const { db, clock, settings, serverSecret, ids } = this.#parts;
    const { url } = await getWebhook(db, org, id);
    const body = JSON.stringify({ type: 'webhook.test', webhookId: id, at: clock.now() });
    const headers = signedHeaders(secretOf(serverSecret, id), ids.next('evt'), clock.now(), body);
    const startedAt = clock.monotonic();
    const outcome = await sendWithin(this.#ctx, settings.requestMs, {
      url: new URL(url),
      headers,
      body,
    }).then(
      (status) => {
        const delivered = status >= 200 && status < 300;
        return { delivered, status, error: delivered ? null : `The receiver answered ${status}.` };
      },
      (thrown: unknown) => ({ delivered: false, status: null, error: messageOf(thrown) }),
    );
    return { ...outcome, durationMs: Math.round(clock.monotonic() - startedAt) };
  }

  /** Starts a deliverer for every webhook that has none here. Those whose lease another server holds end at once. */
  async #supervise(): Promise<void> {
    const { db, notifications, report } = this.#ctx;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const changed = notifications.next(signal);
      try {
        for (const id of await allWebhookIds(db)) if (!this.#running.has(id)) this.#deliver(id);
      } catch (error) {
        report('listing webhooks failed', { error });
      }
      await changed;
    }
  }

  #deliver(id: WebhookId): void {
    const running = new Deliverer(this.#ctx, id)
      .run()
      .catch((error: unknown) => this.#ctx.report('a webhook failed', { webhookId: id, error }))
      .finally(() => this.#running.delete(id));
    this.#running.set(id, running);
  }
}

/** A name is checked when it is resolved, for every request. */
function refuseForbiddenLiteral(check: AddressCheck, { hostname }: URL): void {
  const literal = hostname.replace(/^\[|\]$/g, '');
  if (/^[\d.]+$|:/.test(literal)) check.requireAllowed(literal);
}

function beyondLedger(position: number, newest: number): TorporError {
  return new TorporError(
    'invalid_request',
    `Event ${position} does not exist yet. The newest is ${newest}.`,
    {
      details: { newest },
    },
  );
}

function tooMany(limit: number, used: number): TorporError {
  return new TorporError('quota_exceeded', `The organisation has ${used} webhooks, and may have ${limit}.`, {
    hint: 'Delete one first, or ask the operator to raise the setting webhooks.perOrg.',
    details: { quota: 'webhooks', limit, used },
  });
}
