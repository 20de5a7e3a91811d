/**
 * All sandboxes of the organisation, kept up to date by the ledger. An event shows its state at once; the rest of the
 * view is read again shortly after. Reading never wakes a sandbox.
 */
import { signal } from '@preact/signals';
import {
  type EventView,
  isTransportFault,
  NotFoundError,
  type SandboxId,
  type SandboxState,
  type SandboxView,
} from '@torpor/sdk';
import { torpor } from '../shell/session.ts';
import { connectionBroken } from './connection.ts';

export const sandboxes = signal<ReadonlyMap<SandboxId, SandboxView>>(new Map());
/** Undefined: not loaded yet. Null: loaded. Anything else: why it could not be loaded. */
export const sandboxesFault = signal<unknown>(undefined);

const LIVE: readonly SandboxState[] = [
  'creating',
  'running',
  'pausing',
  'paused',
  'resuming',
  'killing',
  'failed',
  'lost',
];
const READ_AFTER_MS = 150;
/** With more changed sandboxes than this, the whole list is read instead. */
const MAX_SINGLE_READS = 20;

const changed = new Set<SandboxId>();
/** Sandboxes with events since the list was asked for: the answer may be older than what is shown of them. */
const changedMeanwhile = new Set<SandboxId>();
let isReadDue = false;
let loading: AbortController | undefined;

/** Reads the whole list. Killed sandboxes that are known stay. */
export async function loadSandboxes(): Promise<void> {
  loading?.abort();
  const over = new AbortController();
  loading = over;
  changedMeanwhile.clear();
  try {
    const found = new Map<SandboxId, SandboxView>();
    for await (const sandbox of torpor().sandboxes.list({ state: LIVE, limit: 1_000, signal: over.signal })) {
      found.set(sandbox.id, sandbox);
    }
    for (const [id, known] of sandboxes.value) {
      if (found.has(id)) continue;
      // Not in the list any more: killed, or deleted.
      if (known.state === 'killed') found.set(id, known);
      else changed.add(id);
    }
    for (const id of changedMeanwhile) changed.add(id);
    sandboxes.value = found;
    sandboxesFault.value = null;
    if (changed.size > 0) readSoon();
  } catch (error) {
    if (over.signal.aborted) return;
    sandboxesFault.value = error;
    if (isTransportFault(error)) connectionBroken();
  }
}

export async function loadKilled(): Promise<void> {
  const { items } = await torpor().sandboxes.page({ state: 'killed', limit: 1_000 });
  put(items);
}

/** Reads one again, without waking it. */
export async function refreshSandbox(id: SandboxId): Promise<void> {
  const before = sandboxes.value.get(id);
  if (before?.state !== 'running' && before?.state !== 'paused') return;
  const view = await readOne(id);
  // What has changed in the meantime is newer than this answer may be.
  if (view !== undefined && sandboxes.value.get(id) === before) put([view]);
}

/** A warm sandbox that leaves the memory makes no event, so the sleeping ones are read again from time to time. */
export async function refreshWarm(): Promise<void> {
  const isWarm = [...sandboxes.value.values()].some(({ warm }) => warm === true);
  if (!isWarm || document.visibilityState !== 'visible') return;
  const page = await torpor()
    .sandboxes.page({ state: 'paused', limit: 1_000, retries: 0 })
    .catch(() => undefined);
  const moved = (page?.items ?? []).filter(({ id, state, warm }) => {
    const known = sandboxes.value.get(id);
    return known?.state === state && known.warm !== warm;
  });
  if (moved.length > 0) put(moved);
}

export function applyEvent({ sandboxId, state, generation, checkpointId }: EventView): void {
  const known = sandboxes.value.get(sandboxId);
  if (known !== undefined && known.state !== state) {
    // Whether it is in memory is not in the event, and is read shortly after.
    const unread = { warm: null, warmReason: null };
    put([{ ...known, ...unread, state, generation, checkpointId: checkpointId ?? known.checkpointId }]);
  }
  changed.add(sandboxId);
  changedMeanwhile.add(sandboxId);
  readSoon();
}

/** Shows a view that an action has answered with, before its events arrive. */
export function put(views: readonly SandboxView[]): void {
  const next = new Map(sandboxes.value);
  for (const view of views) next.set(view.id, view);
  sandboxes.value = next;
}

export function forgetSandboxes(): void {
  loading?.abort();
  changed.clear();
  sandboxes.value = new Map();
  sandboxesFault.value = undefined;
}

function readSoon(): void {
  if (isReadDue) return;
  isReadDue = true;
  setTimeout(() => {
    isReadDue = false;
    void readChanged();
  }, READ_AFTER_MS);
}

async function readChanged(): Promise<void> {
  const ids = [...changed];
  changed.clear();
  if (ids.length > MAX_SINGLE_READS) return loadSandboxes();
  const read = await Promise.all(ids.map(readOne));
  const views = read.filter((view) => view !== undefined && !changed.has(view.id)) as SandboxView[];
  if (views.length > 0) put(views);
}

async function readOne(id: SandboxId): Promise<SandboxView | undefined> {
  try {
    return await torpor().sandboxes.get(id, { retries: 1 });
  } catch (error) {
    if (error instanceof NotFoundError) {
      const next = new Map(sandboxes.value);
      next.delete(id);
      sandboxes.value = next;
    }
    // When the server cannot be reached, the list is read again after the stream has begun again.
    return undefined;
  }
}
