/**
 * Sends the events of one webhook, as long as this server holds its lease. Each turn of the loop renews the lease, begins a
 * requested replay, plans new events, and sends what is due. Everything that must survive a crash is in the database before
 * the next effect.
 */
import type { Clock, Database, Engine, NotificationSubscription, Report } from '@torpor/engine';
import { matchesFilter, type SandboxId, TorporError, type WebhookId } from '@torpor/protocol';
import {
  countWaiting,
  type Delivery,
  deleteDelivery,
  failDelivery,
  insertDeliveries,
  listDue,
} from './delivery.ts';
import type { SendRequest } from './send.ts';
import type { WebhookSettings } from './settings.ts';
import { secretOf, signedHeaders } from './signature.ts';
import {
  beginReplay,
  findWebhook,
  movePosition,
  recordFailure,
  recordSuccess,
  releaseLease,
  takeLease,
  type Webhook,
} from './webhook.ts';

/** Named places between two effects, where a test kills the server. */
export type WebhookPoint = `webhook.${'planned' | 'sent' | 'recorded' | 'replayed'}`;

export interface DelivererContext {
  readonly engine: Pick<Engine, 'events'>;
  readonly db: Database;
  readonly clock: Clock;
  readonly notifications: NotificationSubscription;
  readonly serverId: string;
  /** The secrets of webhooks are derived from it. */
  readonly serverSecret: Uint8Array;
  readonly send: SendRequest;
  readonly settings: WebhookSettings;
  readonly report: Report;
  /** Called between two effects; does nothing outside of a test. */
  readonly atFaultPoint: (point: WebhookPoint) => Promise<void> | void;
  readonly stopping: AbortSignal;
}

/** Events that one turn of the loop reads. */
const PAGE = 200;

/** How often the outcome of a delivery is written before the database counts as refusing it. */
const RECORD_TRIES = 3;
/** How many windows of events may wait when most of them wait behind an event that fails. */
const BLOCKED_WINDOWS = 10;

export class Deliverer {
  readonly #ctx: DelivererContext;
  readonly #id: WebhookId;
  /** The sandboxes whose event is being sent. */
  readonly #sending = new Map<SandboxId, Promise<void>>();
  /** How many sends have ended. */
  #ended = 0;
  #leaseUntil = 0;

  constructor(ctx: DelivererContext, id: WebhookId) {
    this.#ctx = ctx;
    this.#id = id;
  }

  /** Returns when the server stops, the webhook is deleted, or another server holds the lease. */
  async run(): Promise<void> {
    const { stopping, notifications, db, serverId } = this.#ctx;
    try {
      while (!stopping.aborted) {
        // Begins before the reads, so that a commit between the reads and the wait ends the wait.
        const changed = notifications.next(stopping);
        const endedBefore = this.#ended;
        const next = await this.#turn();
        if (next === 'ended') return;
        // A send that ended during the turn may have made room for the next event of its sandbox.
        if (next === 'more' || this.#ended > endedBefore) continue;
        await Promise.race([changed, ...this.#sending.values()]);
      }
    } finally {
      await Promise.all(this.#sending.values());
      await db.transaction((tx) => releaseLease(tx, this.#id, serverId)).catch(() => {});
    }
  }

  /** `more`: another turn has work at once. */
  async #turn(): Promise<'more' | 'none' | 'ended'> {
    const { db, clock, settings } = this.#ctx;
    if (!(await this.#keepLease())) return 'ended';
    const webhook = await findWebhook(db, this.#id);
    if (webhook === undefined) return 'ended';
    if (webhook.replayFrom !== null) return this.#replay();
    const planned = await this.#plan(webhook);
    const free = settings.atOnce - this.#sending.size;
    if (free <= 0) return 'none';
    // An event whose send ends during the query may still be in its result: it must not be sent again.
    const sending = new Set(this.#sending.keys());
    const due = await listDue(db, this.#id, clock.now(), settings.atOnce + sending.size);
    const next = due.filter(({ sandboxId }) => !sending.has(sandboxId)).slice(0, free);
    for (const delivery of next) this.#start(webhook, delivery);
    return planned ? 'more' : 'none';
  }

  /** Every request that starts now ends before the lease does. */
  async #keepLease(): Promise<boolean> {
    const { db, clock, settings, serverId } = this.#ctx;
    const now = clock.now();
    const left = this.#leaseUntil - now;
    if (left > Math.max(settings.leaseMs / 2, settings.requestMs)) return true;
    const until = now + settings.leaseMs;
    const taken = await db.transaction((tx) => takeLease(tx, this.#id, serverId, now, until));
    if (taken === undefined) return false;
    this.#leaseUntil = taken;
    return true;
  }

  /** Waits for what is being sent: an event that is sent now must not arrive after the replayed ones have begun. */
  async #replay(): Promise<'more'> {
    const { db, serverId, atFaultPoint } = this.#ctx;
    await Promise.all(this.#sending.values());
    await db.transaction((tx) => beginReplay(tx, this.#id, serverId));
    await atFaultPoint('webhook.replayed');
    return 'more';
  }

  /** Writes rows for the next events of the ledger and moves the position, in one transaction. */
  async #plan(webhook: Webhook): Promise<boolean> {
    const { engine, db, clock, settings, serverId, atFaultPoint } = this.#ctx;
    const waiting = await countWaiting(db, webhook.id);
    // One sandbox whose events fail must not keep out the others; a receiver that fails altogether must not fill the table.
    const room = Math.min(
      settings.window - (waiting.all - waiting.blocked),
      settings.window * BLOCKED_WINDOWS - waiting.all,
    );
    if (room <= 0) return false;
    const limit = Math.min(PAGE, room);
    const events = await engine.events({ org: webhook.org, afterPosition: webhook.position }, limit);
    const last = events.at(-1);
    if (last === undefined) return false;
    const wanted = events.filter(({ type }) => matchesFilter(webhook.events, type));
    const moved = await db.transaction(async (tx) => {
      if (!(await movePosition(tx, webhook, serverId, last.position))) return false;
      await insertDeliveries(tx, webhook.id, wanted, clock.now());
      return true;
    });
    await atFaultPoint('webhook.planned');
    // Also after a lost race: the next turn reads the webhook again.
    return !moved || events.length === limit;
  }

  #start(webhook: Webhook, delivery: Delivery): void {
    const sending = this.#deliver(webhook, delivery)
      .catch(async (error: unknown) => {
        const { report, clock, settings, stopping } = this.#ctx;
        report('recording a webhook delivery failed', { webhookId: webhook.id, error });
        // The event is still due. Without a pause it would be sent again and again while the database refuses writes.
        await clock.sleep(settings.firstRetryMs, stopping).catch(() => {});
      })
      .finally(() => {
        this.#sending.delete(delivery.sandboxId);
        this.#ended += 1;
      });
    this.#sending.set(delivery.sandboxId, sending);
  }

  async #deliver(webhook: Webhook, delivery: Delivery): Promise<void> {
    const { atFaultPoint } = this.#ctx;
    const failure = await this.#send(webhook, delivery).catch(messageOf);
    await atFaultPoint('webhook.sent');
    await this.#record(webhook, delivery, failure);
    await atFaultPoint('webhook.recorded');
  }

  /** Tried again at once when it fails: sending the event a second time would be worse. */
  async #record(webhook: Webhook, delivery: Delivery, failure: string | undefined): Promise<void> {
    const { db, clock, settings } = this.#ctx;
    const now = clock.now();
    for (let tries = 1; ; tries += 1) {
      try {
        await db.transaction(async (tx) => {
          if (failure === undefined) {
            await deleteDelivery(tx, delivery);
            await recordSuccess(tx, webhook.id, now);
          } else {
            const tryAt = nextTry(delivery, now, settings);
            await failDelivery(tx, delivery, { now, message: failure, tryAt });
            await recordFailure(tx, webhook.id, now, failure);
          }
        });
        return;
      } catch (thrown) {
        if (tries === RECORD_TRIES) throw thrown;
      }
    }
  }

  /** Undefined when the receiver has accepted the event, otherwise why it did not. */
  async #send({ id, org, url }: Webhook, { position }: Delivery): Promise<string | undefined> {
    const { engine, clock, settings, serverSecret } = this.#ctx;
    const [event] = await engine.events({ org, afterPosition: position - 1 }, 1);
    if (event?.position !== position) return `There is no event ${position}.`;
    const body = JSON.stringify(event);
    const headers = signedHeaders(secretOf(serverSecret, id), event.id, clock.now(), body);
    const status = await sendWithin(this.#ctx, settings.requestMs, { url: new URL(url), headers, body });
    return status >= 200 && status < 300 ? undefined : `The receiver answered ${status}.`;
  }
}

/** When a failed event is sent again; null when it has failed for too long. */
function nextTry(
  { tries, firstTriedAt }: Delivery,
  now: number,
  { firstRetryMs, longestRetryMs, giveUpMs }: WebhookSettings,
): number | null {
  if (firstTriedAt !== null && now - firstTriedAt >= giveUpMs) return null;
  // The exponent is bounded, because a large power is Infinity.
  return now + Math.min(longestRetryMs, firstRetryMs * 2 ** Math.min(tries, 40));
}

/** Sends within a time limit of the given clock. */
export async function sendWithin(
  { send, clock }: Pick<DelivererContext, 'send' | 'clock'>,
  ms: number,
  request: Omit<Parameters<SendRequest>[0], 'signal'>,
): Promise<number> {
  const timeLimit = new AbortController();
  const sent = new AbortController();
  clock.sleep(ms, sent.signal).then(
    () => timeLimit.abort(),
    () => {},
  );
  try {
    return await send({ ...request, signal: timeLimit.signal });
  } finally {
    sent.abort();
  }
}

export function messageOf(thrown: unknown): string {
  return thrown instanceof TorporError ? thrown.message : String(thrown);
}
