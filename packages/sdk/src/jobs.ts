/** Tracked jobs: the services and background processes of sandboxes. */
import {
  type AnyJobView,
  anyJobSchema,
  type JobId,
  type JobState,
  pageSchema,
  type SandboxId,
  type TrackedJobView,
  trackedJobSchema,
} from '@torpor/protocol';
import type { JsonCalls, MutationOptions, ReadOptions } from './json-calls.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { validated } from './validate.ts';

export interface JobFilter extends PageOptions {
  readonly state?: JobState | readonly JobState[] | undefined;
}

export interface EndJobOptions extends MutationOptions {
  /** The time between SIGTERM and SIGKILL; 0 kills the process at once. */
  readonly graceSeconds?: number | undefined;
}

const jobPage = pageSchema(trackedJobSchema);

export class Jobs {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** A service, a background process, or a build: `kind` says which. */
  get(id: JobId, options: ReadOptions = {}): Promise<AnyJobView> {
    return this.#calls.get(pathOf(id), anyJobSchema, options);
  }

  page(
    sandboxId: SandboxId,
    { state, limit, cursor, ...options }: JobFilter = {},
  ): Promise<Page<TrackedJobView>> {
    const states = typeof state === 'string' ? state : state?.join(',');
    return this.#calls.get(`/v1/sandboxes/${encodeURIComponent(sandboxId)}/jobs`, jobPage, {
      query: { state: states, limit, cursor },
      ...options,
    });
  }

  /** Newest first. Never wakes the sandbox. */
  list(sandboxId: SandboxId, filter: JobFilter = {}): AsyncGenerator<TrackedJobView, void> {
    return everyItem((cursor = filter.cursor) => this.page(sandboxId, { ...filter, cursor }));
  }

  /** Wakes a sandbox that sleeps, unless its `autoResume` is off. A job that has ended is returned unchanged. */
  async end(id: JobId, { graceSeconds, ...options }: EndJobOptions = {}): Promise<TrackedJobView> {
    const query = { graceSeconds };
    return validated(await this.#calls.delete(pathOf(id), { query, ...options }), trackedJobSchema);
  }
}

/** The jobs of one sandbox. */
export class SandboxJobs {
  readonly #jobs: Jobs;
  readonly #sandboxId: SandboxId;

  constructor(jobs: Jobs, sandboxId: SandboxId) {
    this.#jobs = jobs;
    this.#sandboxId = sandboxId;
  }

  list(filter: JobFilter = {}): AsyncGenerator<TrackedJobView, void> {
    return this.#jobs.list(this.#sandboxId, filter);
  }

  get(id: JobId, options: ReadOptions = {}): Promise<AnyJobView> {
    return this.#jobs.get(id, options);
  }

  end(id: JobId, options: EndJobOptions = {}): Promise<TrackedJobView> {
    return this.#jobs.end(id, options);
  }
}

function pathOf(id: JobId): string {
  return `/v1/jobs/${encodeURIComponent(id)}`;
}
