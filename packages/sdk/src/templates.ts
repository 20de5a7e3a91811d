/** Templates: named first checkpoints. */
import {
  type CreateTemplateRequest,
  pageSchema,
  type TemplateView,
  templateViewSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';

const templatePage = pageSchema(templateViewSchema);

export class Templates {
  private readonly calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.calls = calls;
  }

  page({ limit, cursor, signal }: PageOptions = {}): Promise<Page<TemplateView>> {
    return this.calls.get('/v1/templates', templatePage, { query: { limit, cursor }, signal });
  }

  list(options: PageOptions = {}): AsyncGenerator<TemplateView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  create(request: CreateTemplateRequest, options: MutationOptions = {}): Promise<TemplateView> {
    return this.calls.post('/v1/templates', templateViewSchema, request, options);
  }
}
