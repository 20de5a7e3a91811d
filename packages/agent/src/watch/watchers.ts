/** Watches for clients: as a stream, or with a queue that clients poll. */
import { realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { EventType, type FilesystemEvent, FilesystemEventSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { describeEntry, type EntryParts } from '../files/entries.ts';
import { withFileErrors } from '../files/file-errors.ts';
import type { FileContext, ResolvedPath } from '../files/paths.ts';
import type { ChangeType } from './entry-changes.ts';
import { EventQueue } from './event-queue.ts';
import type { OpenWatches, SettlingWatch } from './open-watches.ts';
import { type Change, TreeWatcher } from './tree-watcher.ts';

export interface WatchRequest {
  readonly path: string;
  readonly recursive: boolean;
  readonly includeEntry: boolean;
}

export interface OpenWatch extends SettlingWatch {
  readonly events: EventQueue<FilesystemEvent>;
  close(): void;
}

export interface WatchParts extends EntryParts {
  readonly watches: OpenWatches;
}

const MAX_WAITING_EVENTS = 10_000;

const TYPES: Readonly<Record<ChangeType, EventType>> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
};

export async function openWatch(
  request: WatchRequest,
  context: FileContext,
  parts: WatchParts,
): Promise<OpenWatch> {
  const { watches } = parts;
  const place = await parts.paths.target(request.path, context);
  const found = await withFileErrors(place.path, () => stat(place.real));
  if (!found.isDirectory()) throw new TorporError('invalid_request', `${place.path} is not a directory.`);
  const events = new EventQueue<FilesystemEvent>(MAX_WAITING_EVENTS);
  let described = Promise.resolve();
  const watcher = await TreeWatcher.open(await withFileErrors(place.path, () => realpath(place.real)), {
    recursive: request.recursive,
    isAgentChange: (path) => watches.isAgentChanging(path),
    onChanges: (changes) => {
      // One batch after the other, so that a batch whose entries are read quickly does not overtake an earlier one.
      described = described.then(async () => {
        events.push(await Promise.all(changes.map((change) => toEvent(change, place, request, parts))));
      });
    },
    onFailure: (error) => {
      described = described.then(() => events.fail(error));
    },
  });
  const opened: OpenWatch = {
    events,
    async settle(changed) {
      await watcher.settle(changed);
      await described;
    },
    close() {
      watches.delete(opened);
      watcher.close();
    },
  };
  watches.add(opened);
  return opened;
}

async function toEvent(
  { name, type }: Change,
  top: ResolvedPath,
  { includeEntry }: WatchRequest,
  parts: EntryParts,
): Promise<FilesystemEvent> {
  const place = { path: join(top.path, name), real: join(top.real, name) };
  const isThere = type !== 'remove' && type !== 'rename';
  const entry =
    includeEntry && isThere ? await describeEntry(place, parts).catch(() => undefined) : undefined;
  return create(FilesystemEventSchema, {
    name,
    type: TYPES[type],
    ...(entry === undefined ? {} : { entry }),
  });
}

/** A polled watch is closed after this long without a poll, because a client may vanish without removing it. */
const UNPOLLED_EXPIRY_MS = 15 * 60_000;
const MAX_POLLED = 256;

interface PolledWatch {
  readonly watch: OpenWatch;
  expiry: NodeJS.Timeout;
}

export class PolledWatches {
  readonly #watches = new Map<string, PolledWatch>();
  readonly #newId: () => string;

  constructor(newId: () => string) {
    this.#newId = newId;
  }

  add(watch: OpenWatch): string {
    if (this.#watches.size >= MAX_POLLED) {
      watch.close();
      throw new TorporError('capacity', `There are ${MAX_POLLED} watchers already; remove some.`);
    }
    const id = this.#newId();
    this.#watches.set(id, { watch, expiry: this.#startExpiry(id) });
    return id;
  }

  /** All events of changes before the call. */
  async drain(id: string): Promise<FilesystemEvent[]> {
    const polled = this.#watches.get(id);
    if (polled === undefined) throw new TorporError('not_found', `There is no watcher ${id}.`);
    clearTimeout(polled.expiry);
    polled.expiry = this.#startExpiry(id);
    await polled.watch.settle([]);
    return polled.watch.events.drain();
  }

  remove(id: string): void {
    const polled = this.#watches.get(id);
    if (polled === undefined) throw new TorporError('not_found', `There is no watcher ${id}.`);
    clearTimeout(polled.expiry);
    polled.watch.close();
    this.#watches.delete(id);
  }

  #startExpiry(id: string): NodeJS.Timeout {
    return setTimeout(() => this.remove(id), UNPOLLED_EXPIRY_MS).unref();
  }
}
