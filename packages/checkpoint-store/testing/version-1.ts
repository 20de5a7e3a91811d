/** Checkpoints as version 1 of the store sealed them, which must be readable for good. */
import { createHash } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointId } from '@torpor/protocol';

/** Rewrites a sealed checkpoint to what version 1 would have written. */
export async function makeVersion1(root: string, id: CheckpointId): Promise<void> {
  const directory = join(root, 'sealed', id);
  const [json = ''] = (await readFile(join(directory, 'manifest.json'), 'utf8')).split('\n', 1);
  const { contents: _, entries, ...about } = JSON.parse(json) as Record<string, unknown>;
  const text = `${JSON.stringify({ ...about, version: 1, entries })}\n`;
  const sha256 = createHash('sha256').update(text).digest('hex');
  const seal = { version: 1, manifest: { bytes: Buffer.byteLength(text), sha256 } };
  await writeFile(join(directory, 'manifest.json'), text);
  await writeFile(join(directory, 'seal.json'), `${JSON.stringify(seal)}\n`);
  await rm(join(directory, 'parts.jsonl'));
}
