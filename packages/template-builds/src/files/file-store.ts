/**
 * Archives that clients upload for the copy steps of builds, by the hash that the client computed.
 *
 * A client computes its hash from its own files, with details that an archive does not have, so the hash is only a name
 * and belongs to one organisation. What arrived is identified by its own digest, which is checked before every use.
 *
 * An upload is two files: the archive without compression, named by its digest, and a record named by the client's hash.
 * The record is written last, so a crash leaves no record of an incomplete archive.
 *
 * Each node has its own uploads. A build that runs on another node than the one that got an upload fetches it from there.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Clock } from '@torpor/engine';
import { isMissing, KeyedMutex, sha256Of, sha256OfFile, syncDirectory, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import type { TemplateBuildSettings } from '../settings.ts';
import { type ArchiveEntry, archiveEntrySchema, inspectArchive, unusable } from './inspect-archive.ts';

const recordSchema = z.object({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.number(),
  entries: z.array(archiveEntrySchema),
});

export interface StoredArchive {
  /** The archive without compression. */
  readonly path: string;
  readonly entries: readonly ArchiveEntry[];
}

/** An upload of another node. The reader must read or destroy the content. */
export interface RemoteUpload {
  readonly sha256: string;
  readonly content: Readable;
}

/** Undefined when no other node has the upload. */
export type FindRemoteUpload = (
  org: string,
  hash: string,
  signal?: AbortSignal,
) => Promise<RemoteUpload | undefined>;

export interface FileStoreContext {
  readonly directory: string;
  /** Absent on a server that is alone. */
  readonly elsewhere?: FindRemoteUpload | undefined;
  readonly clock: Clock;
  readonly settings: Pick<TemplateBuildSettings, 'fileBytes' | 'fileTotalBytes' | 'fileKeepMs'>;
}

/** An upload that was used this recently is not removed to make room. */
const IN_USE_MS = 3_600_000;
const HASH = /^[0-9a-f]{64}$/;
/** Node's error codes for a client that went away. */
const DISCONNECTED: readonly string[] = ['ECONNRESET', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'];

export class FileStore {
  readonly #ctx: FileStoreContext;
  /** Changes of the files of one organisation run one at a time; receiving bytes does not. */
  readonly #changes = new KeyedMutex<string>();

  constructor(ctx: FileStoreContext) {
    this.#ctx = ctx;
  }

  /** Whether this node or another one has the upload. */
  async has(org: string, hash: string): Promise<boolean> {
    if ((await this.#record(org, hash)) !== undefined) return true;
    const found = await this.#ctx.elsewhere?.(org, hash);
    found?.content.destroy();
    return found !== undefined;
  }

  /** The upload with this hash, verified. Fetched first when only another node has it. */
  async open(org: string, hash: string, signal: AbortSignal): Promise<StoredArchive> {
    const record = (await this.#record(org, hash)) ?? (await this.#fetch(org, hash, signal));
    if (record === undefined) throw missing(hash);
    const path = this.#archive(org, record.sha256);
    if ((await sha256OfFile(path).catch(() => undefined)) !== record.sha256) {
      await rm(this.#recordPath(org, hash), { force: true });
      throw missing(hash);
    }
    return { path, entries: record.entries };
  }

  /** The upload as this node has it, for another node, which verifies it. */
  async own(org: string, hash: string): Promise<RemoteUpload | undefined> {
    const record = await this.#record(org, hash);
    if (record === undefined) return undefined;
    return { sha256: record.sha256, content: createReadStream(this.#archive(org, record.sha256)) };
  }

  async #fetch(org: string, hash: string, signal: AbortSignal) {
    const found = await this.#ctx.elsewhere?.(org, hash, signal);
    if (found === undefined) return undefined;
    await this.receive(org, hash, found.content, signal, found.sha256);
    return this.#record(org, hash);
  }

  /** Replaces an earlier upload with the same hash. A failed upload leaves nothing. `wanted`: the digest that it must have. */
  async receive(
    org: string,
    hash: string,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
    wanted?: string,
  ): Promise<void> {
    const directory = this.#directory(org);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const unfinished = join(directory, `${randomBytes(8).toString('hex')}.part`);
    try {
      const { sha256, bytes, entries } = await this.#write(unfinished, source, signal);
      if (wanted !== undefined && sha256 !== wanted) throw missing(hash);
      await this.#changes.run(org, async () => {
        await this.#makeRoom(org, bytes);
        await rename(unfinished, this.#archive(org, sha256));
        await syncDirectory(directory);
        await writeFileDurably(this.#recordPath(org, hash), JSON.stringify({ sha256, bytes, entries }));
      });
    } catch (thrown) {
      await rm(unfinished, { force: true });
      throw thrown;
    }
  }

  /** Removes uploads that were not used for a while, archives without a record, and what a dead server left. */
  async expire(): Promise<void> {
    const { directory, clock, settings } = this.#ctx;
    for (const org of await list(directory)) {
      await this.#changes.run(org, async () => {
        const place = join(directory, org);
        const before = clock.now() - settings.fileKeepMs;
        for (const { path, usedAt } of await recordsIn(place))
          if (usedAt < before) await rm(path, { force: true });
        const used = new Set((await recordsIn(place)).map(({ sha256 }) => `${sha256}.tar`));
        for (const name of await list(place)) {
          const isLeft = name.endsWith('.tar') ? !used.has(name) : name.endsWith('.part');
          const found = isLeft ? await stat(join(place, name)).catch(() => undefined) : undefined;
          // A build may be reading the archive, and an upload may be under way.
          if (found !== undefined && found.mtimeMs < clock.now() - settings.fileKeepMs)
            await rm(join(place, name), { force: true });
        }
      });
    }
  }

  /** Writes the archive without compression, and inspects it on the way. */
  async #write(path: string, source: AsyncIterable<Buffer>, signal: AbortSignal) {
    const { fileBytes } = this.#ctx.settings;
    const hash = createHash('sha256');
    const file = await open(path, 'wx', 0o600);
    let bytes = 0;
    const stored = async function* (plain: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const chunk of plain) {
        signal.throwIfAborted();
        bytes += chunk.length;
        if (bytes > fileBytes) throw tooLarge(fileBytes);
        hash.update(chunk);
        await file.write(chunk);
        yield chunk;
      }
    };
    try {
      const entries = await inspectArchive(stored(await decompressed(bounded(source, fileBytes))));
      await file.sync();
      return { sha256: hash.digest('hex'), bytes, entries };
    } catch (thrown) {
      const { code } = thrown as NodeJS.ErrnoException;
      if (code === 'ENOSPC' || code === 'EDQUOT')
        throw new TorporError('storage_full', 'The upload cannot be stored.', { cause: thrown });
      if (code?.startsWith('Z_')) throw unusable('its compression is damaged');
      if (DISCONNECTED.includes(String(code)))
        throw new TorporError('invalid_request', 'The upload was interrupted.', { cause: thrown });
      throw thrown;
    } finally {
      await file.close();
    }
  }

  /** Removes the uploads that were not used for the longest time, until the new one fits. */
  async #makeRoom(org: string, bytes: number): Promise<void> {
    const { clock, settings } = this.#ctx;
    const records = (await recordsIn(this.#directory(org))).sort((a, b) => a.usedAt - b.usedAt);
    let total = records.reduce((sum, record) => sum + record.bytes, bytes);
    for (const record of records) {
      if (total <= settings.fileTotalBytes) return;
      if (record.usedAt > clock.now() - IN_USE_MS) break;
      await rm(record.path, { force: true });
      await rm(this.#archive(org, record.sha256), { force: true });
      total -= record.bytes;
    }
    if (total <= settings.fileTotalBytes) return;
    throw new TorporError(
      'quota_exceeded',
      `The uploads of the organisation would have more than ${settings.fileTotalBytes} bytes.`,
      { hint: 'Leave out files that the steps can download, or wait until earlier uploads expire.' },
    );
  }

  /** Undefined when there is no such upload. Notes the use. */
  async #record(org: string, hash: string): Promise<z.infer<typeof recordSchema> | undefined> {
    if (!HASH.test(hash))
      throw new TorporError('invalid_request', 'A hash of files has 64 hexadecimal digits.');
    const path = this.#recordPath(org, hash);
    const text = await readFile(path, 'utf8').catch((thrown: unknown) => {
      if (isMissing(thrown)) return undefined;
      throw thrown;
    });
    if (text === undefined) return undefined;
    const record = recordSchema.parse(JSON.parse(text));
    const archive = await stat(this.#archive(org, record.sha256)).catch(() => undefined);
    if (archive?.size !== record.bytes) return undefined;
    const now = this.#ctx.clock.now() / 1_000;
    await utimes(path, now, now);
    return record;
  }

  /** Names of organisations need not be names of files. */
  #directory(org: string): string {
    return join(this.#ctx.directory, sha256Of(org).slice(0, 32));
  }

  #recordPath(org: string, hash: string): string {
    return join(this.#directory(org), `${hash}.json`);
  }

  #archive(org: string, sha256: string): string {
    return join(this.#directory(org), `${sha256}.tar`);
  }
}

async function recordsIn(directory: string) {
  const found = [];
  for (const name of await list(directory)) {
    if (!name.endsWith('.json')) continue;
    const path = join(directory, name);
    const text = await readFile(path, 'utf8').catch(() => '');
    const parsed = recordSchema.safeParse(text === '' ? undefined : JSON.parse(text));
    const { mtimeMs: usedAt } = await stat(path).catch(() => ({ mtimeMs: 0 }));
    if (parsed.success) found.push({ path, usedAt, sha256: parsed.data.sha256, bytes: parsed.data.bytes });
  }
  return found;
}

function list(directory: string): Promise<string[]> {
  return readdir(directory).catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
}

async function* bounded(source: AsyncIterable<Buffer>, limit: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > limit) throw tooLarge(limit);
    yield chunk;
  }
}

/** Clients send plain archives, or archives compressed with gzip. */
async function decompressed(source: AsyncGenerator<Buffer>): Promise<AsyncIterable<Buffer>> {
  const { value: first = Buffer.alloc(0) } = await source.next();
  const whole = async function* () {
    yield first;
    yield* source;
  };
  if (first[0] !== 0x1f || first[1] !== 0x8b) return whole();
  const output = createGunzip();
  // A failure of either end reaches the reader of the output, and a reader that stops ends the input.
  pipeline(Readable.from(whole()), output, () => {});
  return output;
}

/** The content of an entry. */
export function contentOf(path: string, { at, size }: ArchiveEntry): AsyncIterable<Uint8Array> {
  return size === 0 ? nothing() : createReadStream(path, { start: at, end: at + size - 1 });
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

function tooLarge(limit: number): TorporError {
  return new TorporError('invalid_request', `The upload has more than ${limit} bytes.`, {
    hint: 'Leave out files that the steps can download.',
  });
}

function missing(hash: string): TorporError {
  return new TorporError('not_found', `The files with the hash ${hash} are not on this server.`, {
    hint: 'Upload them again, and start the build again.',
  });
}
