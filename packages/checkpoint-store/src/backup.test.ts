import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { copyCheckpoint, storeAt } from './backup.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'store-backup-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

describe('a copy of a checkpoint', () => {
  it('leaves out the temporary files of a verification that runs meanwhile', async () => {
    const [from, to] = [await storeAt(join(directory, 'from')), await storeAt(join(directory, 'to'))];
    const id = newCheckpointId();
    await sealSmall(from.store, id);
    await writeFile(join(from.root, 'sealed', id, 'digests.json.tmp'), 'unfinished');
    await copyCheckpoint(id, from, to);
    const names = await readdir(join(to.root, 'sealed', id));
    expect(names.sort()).toEqual(['content', 'digests.json', 'manifest.json', 'parts.jsonl']);
    await to.store.verify(id);
  });
});
