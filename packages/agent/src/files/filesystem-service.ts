/** The RPCs on files. They run with the agent's own rights; the calling user owns the files they create. */
import { cp, lstat, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from '@connectrpc/connect';
import type { Filesystem, WatchDirResponseSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { keepaliveMs, withKeepalive } from '../http/keepalive.ts';
import { openWatch, PolledWatches, type WatchParts } from '../watch/watchers.ts';
import { listDirectory } from './directory-listing.ts';
import { describeEntry, type EntryParts } from './entries.ts';
import { errnoOf, withFileErrors } from './file-errors.ts';
import { copyOwners } from './ownership.ts';
import type { FileContext, ResolvedPath } from './paths.ts';
import { makeDirectoriesFor } from './upload.ts';

export function filesystemService(
  parts: WatchParts,
  contextOf: (call: HandlerContext) => FileContext,
  newId: () => string,
): ServiceImpl<typeof Filesystem> {
  const polled = new PolledWatches(newId);
  return {
    async stat({ path }, call) {
      const place = await parts.paths.entry(path, contextOf(call));
      return { entry: await describeEntry(place, parts) };
    },

    async makeDir({ path }, call) {
      const context = contextOf(call);
      const place = await parts.paths.target(path, context);
      await makeDirectory(place, context, parts);
      return { entry: await describeEntry(place, parts) };
    },

    async move({ source, destination }, call) {
      const context = contextOf(call);
      const from = await parts.paths.entry(source, context);
      const to = await parts.paths.entry(destination, context);
      refuseRoot(from, parts);
      await move(from, to, context, parts);
      await parts.metadata.moved(from.real, to.real);
      return { entry: await describeEntry(to, parts) };
    },

    async listDir({ path, depth }, call) {
      const place = await parts.paths.target(path, contextOf(call));
      return { entries: await listDirectory(place, depth || 1, parts) };
    },

    async remove({ path }, call) {
      const place = await parts.paths.entry(path, contextOf(call));
      refuseRoot(place, parts);
      const change = await parts.watches.begin([place.real]);
      try {
        await withFileErrors(place.path, () => rm(place.real, { recursive: true, force: true }));
      } finally {
        await change.reported();
      }
      await parts.metadata.moved(place.real, undefined);
      return {};
    },

    async *watchDir(request, call) {
      const watch = await openWatch(request, contextOf(call), parts);
      // A client that stopped reading and then vanished never lets this generator finish; the signal does fire.
      call.signal.addEventListener('abort', () => watch.close(), { once: true });
      try {
        yield { event: { case: 'start', value: {} } };
        yield* withKeepalive<MessageInitShape<typeof WatchDirResponseSchema>>(
          async () => ({
            event: { case: 'filesystem' as const, value: await watch.events.next(call.signal) },
          }),
          () => ({ event: { case: 'keepalive' as const, value: {} } }),
          keepaliveMs(call.requestHeader),
        );
      } finally {
        watch.close();
      }
    },

    async createWatcher(request, call) {
      return { watcherId: polled.add(await openWatch(request, contextOf(call), parts)) };
    },

    getWatcherEvents: async ({ watcherId }) => ({ events: await polled.drain(watcherId) }),

    removeWatcher({ watcherId }) {
      polled.remove(watcherId);
      return {};
    },
  };
}

async function makeDirectory(
  place: ResolvedPath,
  { owner }: FileContext,
  { watches }: WatchParts,
): Promise<void> {
  const existing = await stat(place.real).catch(() => undefined);
  if (existing?.isDirectory()) {
    // Clients learn from this code that the directory existed already. No TorporError has it.
    throw new ConnectError(`${place.path} already exists`, Code.AlreadyExists);
  }
  if (existing !== undefined) throw new TorporError('invalid_request', `${place.path} is not a directory.`);
  await withFileErrors(place.path, () => makeDirectoriesFor(place.real, owner, watches));
}

async function move(
  from: ResolvedPath,
  to: ResolvedPath,
  { owner }: FileContext,
  { watches }: WatchParts,
): Promise<void> {
  await withFileErrors(from.path, () => lstat(from.real));
  await withFileErrors(to.path, () => makeDirectoriesFor(dirname(to.real), owner, watches));
  const change = await watches.begin([from.real, to.real]);
  try {
    await rename(from.real, to.real);
  } catch (thrown) {
    if (errnoOf(thrown) !== 'EXDEV') return await withFileErrors(from.path, () => Promise.reject(thrown));
    await moveAcross(from, to);
  } finally {
    await change.reported();
  }
}

/** Moves to another filesystem: copies first, and removes the original only when the copy is complete. */
async function moveAcross(from: ResolvedPath, to: ResolvedPath): Promise<void> {
  await withFileErrors(to.path, async () => {
    await cp(from.real, to.real, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
    // A copy belongs to the agent's user. Only root can change the owner, and only root needs to.
    if (process.getuid?.() === 0) await copyOwners(from.real, to.real);
  });
  await withFileErrors(from.path, () => rm(from.real, { recursive: true }));
}

function refuseRoot(place: ResolvedPath, { paths }: EntryParts): void {
  if (place.real === '/' || place.real === paths.root) {
    throw new TorporError('invalid_request', `${place.path} is the sandbox itself.`);
  }
}
