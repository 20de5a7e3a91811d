import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Manifest, SealedCheckpoint } from '@torpor/engine';

/** The directories of the page layers of a sealed checkpoint, its own first. */
export async function pageLayersOf({ path }: Pick<SealedCheckpoint, 'path'>): Promise<string[]> {
  const checkpoint = join(path ?? '', '..');
  const [json = ''] = (await readFile(join(checkpoint, 'manifest.json'), 'utf8')).split('\n');
  const { contents } = JSON.parse(json) as Manifest;
  const layers = join(checkpoint, '..', '..', 'layers');
  const memory = contents.find(({ name }) => name === 'memory');
  return (memory?.layers ?? []).map(({ id }) => join(layers, id, 'fs'));
}
