/** The API keys of the caller's organisation; with an operator key, of any organisation. */
import {
  type CreatedKey,
  type CreateKeyRequest,
  createdKeySchema,
  type KeyView,
  keyViewSchema,
  pageSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { validated } from './validate.ts';

export interface OfOrg {
  /** The organisation, for operator keys; default: the caller's own. */
  readonly orgId?: string | undefined;
}

const keyPage = pageSchema(keyViewSchema);

export class Keys {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  page({ limit, cursor, orgId, ...options }: PageOptions & OfOrg = {}): Promise<Page<KeyView>> {
    return this.#calls.get('/v1/keys', keyPage, { query: { limit, cursor, orgId }, ...options });
  }

  list(options: PageOptions & OfOrg = {}): AsyncGenerator<KeyView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  /** Only this reply contains the key itself. */
  create(
    request: CreateKeyRequest,
    { orgId, ...options }: MutationOptions & OfOrg = {},
  ): Promise<CreatedKey> {
    return this.#calls.post('/v1/keys', createdKeySchema, request, { query: { orgId }, ...options });
  }

  async revoke(id: string, { orgId, ...options }: MutationOptions & OfOrg = {}): Promise<KeyView> {
    const path = `/v1/keys/${encodeURIComponent(id)}`;
    const response = await this.#calls.delete(path, { query: { orgId }, ...options });
    return validated(response, keyViewSchema);
  }
}
