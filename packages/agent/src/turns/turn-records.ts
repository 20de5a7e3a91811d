/**
 * The record of each turn, in the sandbox's own files: a rollback or fork of the files applies to the records as well.
 * A record is on disk before the agent acts on it.
 */
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../files/file-errors.ts';

export type TurnRecord =
  /** The program may have received the turn or not. */
  { readonly is: 'recorded' } | { readonly is: 'written'; readonly tag: string; readonly offset: number };

export class TurnRecords {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async find(id: string): Promise<TurnRecord | undefined> {
    try {
      return parseRecord(await readFile(this.#path(id), 'utf8'));
    } catch (thrown) {
      if (errnoOf(thrown) === 'ENOENT') return undefined;
      // The content is damaged, but the record existed.
      if (thrown instanceof SyntaxError) return { is: 'recorded' };
      throw thrown;
    }
  }

  /** Atomic and durable: after a power failure the file has the new or the old content. */
  async write(id: string, record: TurnRecord): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const path = this.#path(id);
    const fresh = `${path}.new`;
    const file = await open(fresh, 'w', 0o600);
    try {
      await file.writeFile(JSON.stringify(record));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(fresh, path);
    await syncDirectory(this.#directory);
    await syncDirectory(dirname(this.#directory));
  }

  async remove(id: string): Promise<void> {
    await rm(this.#path(id), { force: true });
    await syncDirectory(this.#directory);
  }

  #path(id: string): string {
    return join(this.#directory, `${id}.json`);
  }
}

function parseRecord(text: string): TurnRecord {
  const { is, tag, offset }: Readonly<Record<string, unknown>> = Object(JSON.parse(text));
  if (is === 'written' && typeof tag === 'string' && typeof offset === 'number') return { is, tag, offset };
  return { is: 'recorded' };
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
