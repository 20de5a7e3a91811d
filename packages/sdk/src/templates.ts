/**
 * Templates: the named checkpoints that sandboxes are created from. A template is made from a checkpoint, from a container
 * image, or from the archive of a root filesystem.
 *
 * ```ts
 * await torpor.templates.create({ name: 'seeded', from: checkpoint.id });
 * await torpor.templates.create({ name: 'node', image: 'docker.io/library/node:24' });
 * await torpor.templates.create({
 *   name: 'web',
 *   archive: await openAsBlob('root.tar.zst'),
 *   services: [{ name: 'web', command: 'npm start', port: 3000, ready: { path: '/' } }],
 * });
 * await torpor.sandboxes.create({ template: 'web' });
 * ```
 */
import {
  type CreateTemplateRequest,
  factsOf,
  type ImageTemplateRequest,
  pageSchema,
  type TemplateDefinition,
  type TemplateLogLine,
  type TemplateView,
  templateLogLineSchema,
  templateViewSchema,
} from '@torpor/protocol';
import { errorOfAnswer, NotFoundError, TimeoutError } from './errors.ts';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import type { Call } from './transport.ts';
import { validated } from './validate.ts';

export interface ArchiveTemplateRequest extends TemplateDefinition {
  readonly name: string;
  /** A tar. A root filesystem may be compressed with gzip or zstd. */
  readonly archive: NonNullable<Call['body']>;
  /** What the archive holds: a root filesystem (the default), an image as an OCI layout, or an image of `docker save`. */
  readonly format?: 'root' | 'oci' | 'docker' | undefined;
  /** For an image: runs its ENTRYPOINT and CMD as the service `start`. */
  readonly entrypoint?: boolean | undefined;
  readonly runtime?: string | undefined;
}

const PATH = '/v1/templates';
const POLL_EVERY_MS = 1_000;
const templatePage = pageSchema(templateViewSchema);
const logPage = pageSchema(templateLogLineSchema);

export class Templates {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<TemplateView>> {
    return this.#calls.get(PATH, templatePage, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<TemplateView, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  get(name: string, options: ReadOptions = {}): Promise<TemplateView> {
    return this.#calls.get(pathOf(name), templateViewSchema, options);
  }

  /** What happened while the template was prepared, oldest first. */
  async log(name: string, options: ReadOptions = {}): Promise<readonly TemplateLogLine[]> {
    return (await this.#calls.get(`${pathOf(name)}/log`, logPage, options)).items;
  }

  /** Resolves when the template is ready, however long that takes. */
  create(
    request: CreateTemplateRequest | ImageTemplateRequest | ArchiveTemplateRequest,
    options: MutationOptions = {},
  ): Promise<TemplateView> {
    if ('from' in request) return this.#calls.post(PATH, templateViewSchema, request, options);
    const made =
      'image' in request
        ? this.#calls.post(PATH, templateViewSchema, request, options)
        : this.#send(request, options);
    return made.catch((thrown: unknown) => {
      if (!(thrown instanceof TimeoutError)) throw thrown;
      return this.#untilReady(request.name, thrown, options);
    });
  }

  /**
   * Makes the root of the built-in template again, with the updates of its packages. Resolves at once; `phase` of the
   * template shows the progress. For operator keys.
   */
  rebuild(name: string, options: MutationOptions = {}): Promise<TemplateView> {
    return this.#calls.post(
      `/v1/admin/templates/${encodeURIComponent(name)}/rebuild`,
      templateViewSchema,
      {},
      options,
    );
  }

  /**
   * Lets the other organisations of the server create sandboxes from the template, as `organisation/name`. They get
   * everything that is in it, with its environment.
   */
  publish(name: string, options: MutationOptions = {}): Promise<TemplateView> {
    return this.#calls.patch(pathOf(name), templateViewSchema, { public: true }, options);
  }

  /** Ends `publish`. Sandboxes that exist do not change. */
  unpublish(name: string, options: MutationOptions = {}): Promise<TemplateView> {
    return this.#calls.patch(pathOf(name), templateViewSchema, { public: false }, options);
  }

  async delete(name: string, options: MutationOptions = {}): Promise<void> {
    await this.#calls.delete(pathOf(name), options);
  }

  async #send(request: ArchiveTemplateRequest, options: MutationOptions): Promise<TemplateView> {
    const { name, archive, runtime, format, entrypoint, ...definition } = request;
    const query = { name, runtime, format, entrypoint, definition: JSON.stringify(definition) };
    const headers = { 'content-type': 'application/x-tar' };
    const call = { method: 'POST', path: PATH, query, headers, body: archive, whole: true, ...options };
    return validated(await this.#calls.transport.ask(call), templateViewSchema);
  }

  /** After a timeout the server may still be preparing the template. If the template does not exist, the timeout ended it. */
  async #untilReady(name: string, thrown: TimeoutError, { signal }: ReadOptions): Promise<TemplateView> {
    for (;;) {
      const template = await this.get(name, { signal }).catch((missing: unknown) => {
        throw missing instanceof NotFoundError ? thrown : missing;
      });
      if (template.state === 'ready') return template;
      if (template.error !== null) throw asAnswered(template.error);
      await this.#calls.transport.pace.sleep(POLL_EVERY_MS, signal);
    }
  }
}

function asAnswered(error: NonNullable<TemplateView['error']>): Error {
  return errorOfAnswer(factsOf(error.code).http, null, { error });
}

function pathOf(name: string): string {
  return `${PATH}/${encodeURIComponent(name)}`;
}
