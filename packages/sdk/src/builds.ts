/**
 * Builds: jobs that turn a goal into a live preview.
 *
 * ```ts
 * const { job_id } = await torpor.builds.start({ project_id: 'site', goal: 'a page about otters' });
 * for await (const { type, stage } of torpor.builds.events(job_id)) console.log(type, stage);
 * const { preview_url } = await torpor.builds.status(job_id);
 * ```
 */
import {
  type BuildCancelled,
  type BuildDocs,
  type BuildEvent,
  type BuildFile,
  type BuildLogLine,
  type BuildLogPage,
  type BuildRequest,
  type BuildResumed,
  type BuildSnapshot,
  type BuildStarted,
  type BuildStatus,
  buildCancelledSchema,
  buildDocsSchema,
  buildEventSchema,
  buildFilesSchema,
  buildLogLineSchema,
  buildLogPageSchema,
  buildPageSchema,
  buildResumedSchema,
  buildSnapshotSchema,
  buildStartedSchema,
  buildStatusSchema,
  type IterationsGranted,
  isBuildOver,
  iterationsGrantedSchema,
  type JobId,
} from '@torpor/protocol';
import { errorInside, InternalError } from './errors.ts';
import { withIdleTimeout } from './idle-timeout.ts';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { backoffMs, budgetOf } from './retry.ts';
import { type ServerSentEvent, serverSentEvents } from './server-sent-events.ts';
import { isTransportFault } from './transport-fault.ts';
import { answeredBy, checked } from './validate.ts';

export interface LogPageOptions extends ReadOptions {
  /** Only lines before this one. */
  readonly beforeId?: number | undefined;
  readonly limit?: number | undefined;
}

export class Builds {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  start(request: BuildRequest, options: MutationOptions = {}): Promise<BuildStarted> {
    return this.#calls.post('/api/generation/start', buildStartedSchema, request, options);
  }

  status(id: JobId, options: ReadOptions = {}): Promise<BuildStatus> {
    return this.#calls.get(at(id, 'status'), buildStatusSchema, options);
  }

  /** Newest first. */
  page({ limit, cursor, ...options }: PageOptions = {}): Promise<Page<BuildStatus>> {
    return this.#calls.get('/api/jobs', buildPageSchema, { query: { limit, cursor }, ...options });
  }

  list(options: PageOptions = {}): AsyncGenerator<BuildStatus, void> {
    return everyItem((cursor = options.cursor) => this.page({ ...options, cursor }));
  }

  cancel(id: JobId, options: MutationOptions = {}): Promise<BuildCancelled> {
    return this.#calls.post(at(id, 'cancel'), buildCancelledSchema, {}, options);
  }

  /** Wakes the preview. `ExpiredError` means that only a rebuild helps; `UnreachableError` is temporary. */
  resume(id: JobId, options: MutationOptions = {}): Promise<BuildResumed> {
    return this.#calls.post(at(id, 'resume'), buildResumedSchema, {}, options);
  }

  /** Pauses the preview. A pause that fails is not thrown: `snapshot.outcome` has the result. */
  snapshot(id: JobId, options: MutationOptions = {}): Promise<BuildSnapshot> {
    return this.#calls.post(at(id, 'snapshot'), buildSnapshotSchema, {}, options);
  }

  /** A new build from the goal and the files of this one. */
  rebuild(id: JobId, options: MutationOptions = {}): Promise<BuildStarted> {
    return this.#calls.post(at(id, 'rebuild'), buildStartedSchema, {}, options);
  }

  /** Grants a build more iterations after it has used those that its plan includes. */
  confirm(id: JobId, options: MutationOptions = {}): Promise<IterationsGranted> {
    const path = `/api/jobs/${encodeURIComponent(id)}/confirm`;
    return this.#calls.post(path, iterationsGrantedSchema, {}, options);
  }

  /** Five sections in Markdown; null where nothing is known. */
  docs(id: JobId, options: ReadOptions = {}): Promise<BuildDocs> {
    return this.#calls.get(at(id, 'docs'), buildDocsSchema, options);
  }

  /** The files that the runner made, also of a failed build. */
  async files(id: JobId, options: ReadOptions = {}): Promise<BuildFile[]> {
    return (await this.#calls.get(at(id, 'files'), buildFilesSchema, options)).items;
  }

  async readFile(id: JobId, path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const call = { method: 'GET', path: at(id, 'files'), query: { path }, whole: true };
    const response = await this.#calls.transport.ask({ ...call, ...options });
    return new Uint8Array(await response.arrayBuffer());
  }

  logs(id: JobId, { beforeId, limit, ...options }: LogPageOptions = {}): Promise<BuildLogPage> {
    const query = { before_id: beforeId, limit };
    return this.#calls.get(`/api/jobs/${encodeURIComponent(id)}/logs`, buildLogPageSchema, {
      query,
      ...options,
    });
  }

  /**
   * The events of a build from its beginning to its end: stages that start and complete, and after `ready` the pauses of
   * its preview (`snapshot.updated`, `snapshot.failed`). A broken connection is resumed.
   */
  async *events(id: JobId, options: ReadOptions = {}): AsyncGenerator<BuildEvent, void> {
    const path = `/api/jobs/${encodeURIComponent(id)}/events/stream`;
    let over = false;
    for await (const { event, data } of this.#frames(path, '0', options, () => over)) {
      if (event === 'heartbeat') continue;
      const step = checked(data, buildEventSchema, STREAM_FRAME);
      over = isBuildOver(step.status);
      yield step;
      if (step.status === 'failed') return;
    }
  }

  /** The log lines of a build from now on, or after a line, until its end. A broken connection loses no line. */
  async *followLogs(
    id: JobId,
    { afterId, ...options }: ReadOptions & { readonly afterId?: number | undefined } = {},
  ): AsyncGenerator<BuildLogLine, void> {
    const path = `/api/jobs/${encodeURIComponent(id)}/logs/stream`;
    for await (const { event, data } of this.#frames(path, afterId?.toString(), options)) {
      if (event === 'done') return;
      if (event === 'log') yield checked(data, buildLogLineSchema, STREAM_FRAME);
    }
  }

  /** The frames of a stream. A stream that ends while `mayEnd` is false is resumed behind its last frame. */
  async *#frames(
    path: string,
    from: string | undefined,
    { signal, ...options }: ReadOptions,
    mayEnd: () => boolean = () => false,
  ): AsyncGenerator<ServerSentEvent> {
    const { transport } = this.#calls;
    const retries = budgetOf(options.retries, transport.retries);
    let last = from;
    let fruitless = 0;
    for (;;) {
      const headers = {
        accept: 'text/event-stream',
        ...(last === undefined ? {} : { 'last-event-id': last }),
      };
      const response = await transport.ask({ method: 'GET', path, headers, signal, retries });
      fruitless++;
      let fault: unknown = new InternalError(
        'The server ends the stream again and again.',
        {},
        answeredBy(response),
      );
      try {
        const body = response.body ?? new ReadableStream<Uint8Array>({ start: (to) => to.close() });
        for await (const frame of serverSentEvents(withIdleTimeout(body, transport.silenceMs))) {
          fruitless = 0;
          if (frame.event === 'error') {
            throw errorInside(answeredBy(response).requestId, { error: JSON.parse(frame.data) });
          }
          last = frame.id ?? last;
          yield frame;
        }
        if (mayEnd()) return;
      } catch (thrown) {
        if (signal?.aborted || !isTransportFault(thrown)) throw thrown;
        fault = thrown;
      }
      if (fruitless > retries) throw fault;
      await transport.pace.sleep(backoffMs(fruitless + 1, transport.pace.random, transport.backoff), signal);
    }
  }
}

/** Frames of a stream have no status of their own. */
const STREAM_FRAME = { status: 200, requestId: null };

function at(id: JobId, verb: string): string {
  return `/api/generation/${encodeURIComponent(id)}/${verb}`;
}
