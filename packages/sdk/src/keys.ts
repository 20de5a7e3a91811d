/** API keys of the caller's organisation. */
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

const keyPage = pageSchema(keyViewSchema);

export class Keys {
  private readonly calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.calls = calls;
  }

  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<KeyView>> {
    return this.calls.get('/v1/keys', keyPage, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<KeyView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  /** The answer has the key itself, this once. */
  create(request: CreateKeyRequest, options: MutationOptions = {}): Promise<CreatedKey> {
    return this.calls.post('/v1/keys', createdKeySchema, request, options);
  }

  async revoke(id: string, options: MutationOptions = {}): Promise<KeyView> {
    const response = await this.calls.delete(`/v1/keys/${encodeURIComponent(id)}`, options);
    return validated(response, keyViewSchema);
  }
}
