/**
 * What was written down about each turn, in files of the sandbox: what happens to the files of the sandbox happens
 * to its memory of turns. A record is on the disk before anybody acts on it.
 */
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../agent-failures.ts';

export type TurnRecord =
  /** It may be that the program has it. */
  { readonly is: 'recorded' } | { readonly is: 'written'; readonly tag: string; readonly offset: number };

export class TurnRecords {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async find(id: string): Promise<TurnRecord | undefined> {
    try {
      const record = JSON.parse(await readFile(this.#path(id), 'utf8')) as TurnRecord;
      const { is, tag, offset } = record as Partial<Extract<TurnRecord, { is: 'written' }>>;
      if (is === 'written' && typeof tag === 'string' && typeof offset === 'number')
        return { is, tag, offset };
      return { is: 'recorded' };
    } catch (thrown) {
      if (errnoOf(thrown) === 'ENOENT') return undefined;
      // Whatever stands there, there was a record.
      if (thrown instanceof SyntaxError) return { is: 'recorded' };
      throw thrown;
    }
  }

  /** The file is whole or as it was before, whenever the power goes. */
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

  async forget(id: string): Promise<void> {
    await rm(this.#path(id), { force: true });
    await syncDirectory(this.#directory);
  }

  #path(id: string): string {
    return join(this.#directory, `${id}.json`);
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
