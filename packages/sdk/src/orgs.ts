/** Organisations. An operator key manages all of them, any other key sees only its own. */
import {
  type ChangeOrgRequest,
  type CreateOrgRequest,
  type OrgDetails,
  type OrgView,
  orgDetailsSchema,
  orgViewSchema,
  pageSchema,
  type Retention,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { validated } from './validate.ts';

const orgPage = pageSchema(orgViewSchema);

export class Orgs {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<OrgView>> {
    return this.#calls.get('/v1/orgs', orgPage, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<OrgView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  create(request: CreateOrgRequest, options: MutationOptions = {}): Promise<OrgDetails> {
    return this.#calls.post('/v1/orgs', orgDetailsSchema, request, options);
  }

  get(id: string, options: ReadOptions = {}): Promise<OrgDetails> {
    return this.#calls.get(pathOf(id), orgDetailsSchema, options);
  }

  /** Quotas that are not named stay unchanged; null removes a quota. */
  setQuotas(
    id: string,
    quotas: NonNullable<ChangeOrgRequest['quotas']>,
    options: MutationOptions = {},
  ): Promise<OrgDetails> {
    return this.#calls.patch(pathOf(id), orgDetailsSchema, { quotas }, options);
  }

  /** For sandboxes without a retention of their own. null: keep for ever; "default": the server's setting. */
  setRetention(
    id: string,
    deletePausedAfterSeconds: Retention,
    options: MutationOptions = {},
  ): Promise<OrgDetails> {
    return this.#calls.patch(pathOf(id), orgDetailsSchema, { deletePausedAfterSeconds }, options);
  }

  /** Refused while the organisation still owns anything. */
  async delete(id: string, options: MutationOptions = {}): Promise<OrgView> {
    return validated(await this.#calls.delete(pathOf(id), options), orgViewSchema);
  }
}

function pathOf(id: string): string {
  return `/v1/orgs/${encodeURIComponent(id)}`;
}
