/** Operations: the requests that changed sandboxes, with their progress and result. */
import {
  type OperationId,
  type OperationView,
  operationViewSchema,
  pageSchema,
  type SandboxId,
} from '@torpor/protocol';
import type { JsonCalls, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';

export interface OperationFilter extends PageOptions {
  readonly sandboxId?: SandboxId | undefined;
}

const operationPage = pageSchema(operationViewSchema);

export class Operations {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  get(id: OperationId, options: ReadOptions = {}): Promise<OperationView> {
    return this.#calls.get(`/v1/operations/${encodeURIComponent(id)}`, operationViewSchema, options);
  }

  page({ sandboxId, limit, cursor, ...options }: OperationFilter = {}): Promise<Page<OperationView>> {
    return this.#calls.get('/v1/operations', operationPage, {
      query: { sandboxId, limit, cursor },
      ...options,
    });
  }

  list(filter: OperationFilter = {}): AsyncGenerator<OperationView, void> {
    return everyItem((cursor = filter.cursor) => this.page({ ...filter, cursor }));
  }
}
