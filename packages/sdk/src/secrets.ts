/** Secrets: header values that the egress puts into requests of sandboxes, which never see them. For service keys. */
import { pageSchema, type SecretView, type SetSecretRequest, secretViewSchema } from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { validated } from './validate.ts';

const PATH = '/v1/secrets';
const secretPage = pageSchema(secretViewSchema);

export class Secrets {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** Creates the secret or replaces it as a whole. A sandbox uses it when it names it in `network.secrets`. */
  set(
    name: string,
    request: SetSecretRequest,
    options: Pick<MutationOptions, 'signal'> = {},
  ): Promise<SecretView> {
    return this.#calls.put(pathOf(name), secretViewSchema, request, options);
  }

  /** Without its value, which no call returns. */
  get(name: string, options: ReadOptions = {}): Promise<SecretView> {
    return this.#calls.get(pathOf(name), secretViewSchema, options);
  }

  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<SecretView>> {
    return this.#calls.get(PATH, secretPage, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<SecretView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  async delete(name: string, options: Pick<MutationOptions, 'signal'> = {}): Promise<SecretView> {
    return validated(await this.#calls.delete(pathOf(name), options), secretViewSchema);
  }
}

function pathOf(name: string): string {
  return `${PATH}/${encodeURIComponent(name)}`;
}
