import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Manifest, SealedCheckpoint } from '@torpor/engine';
import { checksummedJson } from '@torpor/layers';
import { MEMORY } from '../src/checkpoint-needs.ts';
import { packImage, unpackImage } from '../src/image/packed-image.ts';
import { pageLayersOf } from './page-layers.ts';

/** Rewrites a sealed checkpoint as earlier versions sealed it: all pages of its memory in the content, and no page layers. */
export async function keepPagesInContent(checkpoint: SealedCheckpoint): Promise<void> {
  const memory = join(checkpoint.path ?? '', MEMORY);
  const raw = await mkdtemp(join(tmpdir(), 'torpor-image-'));
  try {
    await unpackImage({ directory: memory, layers: await pageLayersOf(checkpoint) }, raw, checkpoint.id);
    await rm(memory, { recursive: true });
    await mkdir(memory);
    await packImage(raw, memory, null, new AbortController().signal);
  } finally {
    await rm(raw, { recursive: true });
  }
  await rewriteManifest(checkpoint, memory);
  Object.assign(checkpoint.needs, { pages: [] });
}

async function rewriteManifest({ path }: SealedCheckpoint, memory: string): Promise<void> {
  const file = join(path ?? '', '..', 'manifest.json');
  const [json = ''] = (await readFile(file, 'utf8')).split('\n', 1);
  const manifest = JSON.parse(json) as Manifest;
  const { pages: _, ...needs } = manifest.needs;
  const bytesOf = async (name: string) => (await stat(join(memory, name))).size;
  const others = manifest.entries.filter(({ path: at }) => at !== `${MEMORY}/pieces.json`);
  const written = await Promise.all(
    ['pages.img.zst', 'pieces.json'].map(async (name) => ({
      path: `${MEMORY}/${name}`,
      type: 'file' as const,
      bytes: await bytesOf(name),
    })),
  );
  const entries = [...others, ...written].sort((a, b) => (a.path < b.path ? -1 : 1));
  const contents = manifest.contents.map((part) => (part.name === 'memory' ? { ...part, layers: [] } : part));
  await writeFile(file, checksummedJson(JSON.stringify({ ...manifest, needs, contents, entries })));
}
