/**
 * Follows the objects of this server and tells when one of them may have changed. These are hints only: a watch that is
 * silent, dropped or refused says nothing, so every wait looks again by itself, and every decision reads the object.
 */
import type { Clock, Report } from '@torpor/engine';
import type { Cluster } from './cluster.ts';
import type { List, Metadata } from './resources.ts';

export interface WatchedObject {
  readonly metadata: Metadata;
}

export interface ObjectWatchOptions {
  readonly cluster: Cluster;
  readonly path: string;
  readonly selector: string;
  readonly clock: Clock;
  readonly report: Report;
}

/** Longer than the API server leaves a watch without a bookmark. */
const SILENT_MS = 120_000;
const SERVER_SECONDS = '90';
const FIRST_RETRY_MS = 200;
const MAX_RETRY_MS = 10_000;

export class ObjectWatch<T extends WatchedObject> {
  readonly #options: ObjectWatchOptions;
  readonly #stopping = new AbortController();
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #listeners: ((object: T, isDeleted: boolean) => void)[] = [];
  #running: Promise<void> | undefined;

  constructor(options: ObjectWatchOptions) {
    this.#options = options;
  }

  begin(): void {
    this.#running ??= this.#run();
  }

  onChange(listener: (object: T, isDeleted: boolean) => void): void {
    this.#listeners.push(listener);
  }

  /** Resolves at the next change of the object to true, or after the time to false. */
  async changeOf(name: string, withinMs: number, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const waiting = this.#waiting.get(name) ?? new Set();
    this.#waiting.set(name, waiting);
    const changed = new Promise<boolean>((resolve) => {
      const done = () => resolve(true);
      waiting.add(done);
      over.signal.addEventListener('abort', () => waiting.delete(done));
    });
    const timedOut = this.#options.clock.sleep(withinMs, AbortSignal.any([signal, over.signal])).then(
      () => false,
      () => false,
    );
    const isChanged = await Promise.race([changed, timedOut]);
    over.abort();
    if (waiting.size === 0) this.#waiting.delete(name);
    signal.throwIfAborted();
    return isChanged;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, report } = this.#options;
    const { signal } = this.#stopping;
    let isReported = false;
    for (let retryMs = FIRST_RETRY_MS; !signal.aborted; ) {
      try {
        await this.#follow(() => {
          retryMs = FIRST_RETRY_MS;
          isReported = false;
        });
      } catch (error) {
        if (signal.aborted) return;
        if (!isReported) report('following the cluster failed', { error });
        isReported = true;
      }
      await clock.sleep(retryMs, signal).catch(() => {});
      retryMs = Math.min(2 * retryMs, MAX_RETRY_MS);
    }
  }

  /** One list, then one watch from there, until the API server ends it. */
  async #follow(works: () => void): Promise<void> {
    const { cluster, path, selector: labelSelector } = this.#options;
    const ask = { what: 'follow the objects', signal: this.#stopping.signal };
    const { items, metadata } = await cluster.get<List<T>>(path, { ...ask, query: { labelSelector } });
    for (const object of items) this.#tell(object, false);
    const query = {
      labelSelector,
      watch: '1',
      allowWatchBookmarks: 'true',
      timeoutSeconds: SERVER_SECONDS,
      resourceVersion: metadata.resourceVersion ?? '',
    };
    works();
    for await (const { type, object } of cluster.watch(path, { ...ask, query }, SILENT_MS)) {
      if (type !== 'BOOKMARK') this.#tell(object as T, type === 'DELETED');
    }
  }

  #tell(object: T, isDeleted: boolean): void {
    for (const listener of this.#listeners) listener(object, isDeleted);
    for (const done of this.#waiting.get(object.metadata.name ?? '') ?? []) done();
  }
}
