/** Webhooks: events of the ledger, sent to an address of the caller. For service keys. */
import {
  type CreatedWebhook,
  type CreateWebhookRequest,
  createdWebhookSchema,
  type DeadLetter,
  deadLetterSchema,
  pageSchema,
  type WebhookId,
  type WebhookTest,
  type WebhookView,
  webhookTestSchema,
  webhookViewSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { validated } from './validate.ts';

const PATH = '/v1/webhooks';
const webhookPage = pageSchema(webhookViewSchema);
const deadLetterPage = pageSchema(deadLetterSchema);

export class Webhooks {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** Only this reply contains the secret, with which `verifyWebhook` checks requests. */
  create(request: CreateWebhookRequest, options: MutationOptions = {}): Promise<CreatedWebhook> {
    return this.#calls.post(PATH, createdWebhookSchema, request, options);
  }

  get(id: WebhookId, options: ReadOptions = {}): Promise<WebhookView> {
    return this.#calls.get(pathOf(id), webhookViewSchema, options);
  }

  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<WebhookView>> {
    return this.#calls.get(PATH, webhookPage, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<WebhookView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  async delete(id: WebhookId, options: MutationOptions = {}): Promise<WebhookView> {
    return validated(await this.#calls.delete(pathOf(id), options), webhookViewSchema);
  }

  /** Sends one request that is no event, and resolves with what the receiver answered. */
  test(id: WebhookId, options: MutationOptions = {}): Promise<WebhookTest> {
    return this.#calls.post(pathOf(id, 'test'), webhookTestSchema, {}, options);
  }

  /** Sends the events from this position on again, in order. */
  replay(id: WebhookId, fromPosition: number, options: MutationOptions = {}): Promise<WebhookView> {
    return this.#calls.post(pathOf(id, 'replay'), webhookViewSchema, { fromPosition }, options);
  }

  /** Events that could not be delivered and were given up, oldest first. */
  deadLetters(id: WebhookId, { limit, cursor: first, ...options }: PageOptions = {}) {
    return everyItem<DeadLetter>((cursor = first) =>
      this.#calls.get(pathOf(id, 'dead-letters'), deadLetterPage, { query: { limit, cursor }, ...options }),
    );
  }
}

function pathOf(id: WebhookId, rest?: string): string {
  const webhook = `${PATH}/${encodeURIComponent(id)}`;
  return rest === undefined ? webhook : `${webhook}/${rest}`;
}
