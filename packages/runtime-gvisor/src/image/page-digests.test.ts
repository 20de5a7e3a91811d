import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { digestPages } from './page-digests.ts';
import { DIGEST_BYTES, PAGE_BYTES } from './page-plan.ts';

const { signal } = new AbortController();
let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-digests-'));
  path = join(directory, 'pages.img');
});
afterEach(() => rm(directory, { recursive: true }));

describe('the digests of pages', () => {
  it('are the first bytes of the SHA-256 of each page, also of an incomplete last page', async () => {
    const content = randomBytes(3 * 1024 * 1024 + 100);
    await writeFile(path, content);
    const digests = await digestPages(path, content.length, signal);

    const pages = Math.ceil(content.length / PAGE_BYTES);
    const expected = Array.from({ length: pages }, (_, page) =>
      createHash('sha256')
        .update(content.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES))
        .digest()
        .subarray(0, DIGEST_BYTES),
    );
    expect(digests.equals(Buffer.concat(expected))).toBe(true);
  });

  it('of an empty file are empty', async () => {
    await writeFile(path, '');
    expect(await digestPages(path, 0, signal)).toHaveLength(0);
  });

  it('fail when the file has become shorter, and the next file is digested all the same', async () => {
    await writeFile(path, randomBytes(2 * PAGE_BYTES));
    await truncate(path, PAGE_BYTES);
    await expect(digestPages(path, 2 * PAGE_BYTES, signal)).rejects.toThrow('shorter');
    expect(await digestPages(path, PAGE_BYTES, signal)).toHaveLength(DIGEST_BYTES);
  });

  it('stop when the caller aborts, also in the middle', async () => {
    await writeFile(path, '');
    await truncate(path, 2 ** 31);
    const stopped = new AbortController();
    const digesting = digestPages(path, 2 ** 31, stopped.signal);
    setImmediate(() => stopped.abort(new Error('enough')));
    await expect(digesting).rejects.toThrow('enough');
    await expect(digestPages(path, PAGE_BYTES, AbortSignal.abort(new Error('enough')))).rejects.toThrow(
      'enough',
    );
  });
});
