/** Searches everything that a server writes for a text. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { MEMORY } from '../src/checkpoint-needs.ts';
import { unpackImage } from '../src/image/packed-image.ts';
import { pageLayersOf } from './page-layers.ts';

/** The files below a directory that contain the text, in either encoding that programs keep texts in. */
export async function filesWith(text: string, directory: string): Promise<string[]> {
  const found: string[] = [];
  const wanted = [Buffer.from(text, 'utf8'), Buffer.from(text, 'utf16le')];
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = await readFile(path).catch(() => Buffer.alloc(0));
    if (wanted.some((one) => bytes.includes(one))) found.push(path);
  }
  return found;
}

/** The files of the memory image of a checkpoint that contain the text once they are unpacked. */
export async function memoryWith(
  text: string,
  { id, path }: Pick<SealedCheckpoint, 'id' | 'path'>,
): Promise<string[]> {
  const raw = await mkdtemp(join(tmpdir(), 'torpor-image-'));
  try {
    await unpackImage({ directory: join(path ?? '', MEMORY), layers: await pageLayersOf({ path }) }, raw, id);
    return await filesWith(text, raw);
  } finally {
    await rm(raw, { recursive: true });
  }
}
