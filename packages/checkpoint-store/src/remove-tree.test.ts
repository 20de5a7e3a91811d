import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { errno, FailingFs } from '../testing/failing-store-fs.ts';
import { removeTree } from './remove-tree.ts';
import { realFs } from './store-fs.ts';

let parent: string;
let tree: string;
beforeEach(async () => {
  parent = await files.mkdtemp(join(tmpdir(), 'remove-tree-'));
  tree = join(parent, 'tree');
  await files.mkdir(join(tree, 'content'), { recursive: true });
});
afterEach(() => files.rm(parent, { recursive: true, force: true }));

describe('removing a tree', () => {
  it('does nothing when the path does not exist', async () => {
    await removeTree(realFs, join(parent, 'absent'));
    expect(await files.readdir(parent)).toEqual(['tree']);
  });

  it('does not follow a symlink', async () => {
    await files.mkdir(join(parent, 'outside'));
    await files.symlink(join(parent, 'outside'), join(tree, 'content', 'link'));
    await removeTree(realFs, tree);
    expect(await files.readdir(parent)).toEqual(['outside']);
  });

  it('removes directories without write permission', async () => {
    const locked = join(tree, 'content', 'locked');
    await files.mkdir(join(locked, 'below'), { recursive: true });
    for (const path of [join(locked, 'below'), locked]) await files.chmod(path, 0o500);
    // Root may delete from such directories: what another user would meet is made up for it.
    const failing = new FailingFs((call) =>
      call.name === 'rm' && failing.calls.every(({ name }) => name !== 'chmod') ? errno('EACCES') : undefined,
    );
    await removeTree(failing.fs, tree);
    expect(await files.readdir(parent)).toEqual([]);
    const opened = failing.calls.filter((call) => call.name === 'chmod').map((call) => call.path);
    expect(opened).toEqual(expect.arrayContaining([locked, join(locked, 'below')]));
  });

  it('removes paths longer than the kernel accepts, also after an interrupted removal', async () => {
    await files.mkdir(join(tree, 'lifted-0'));
    const step = 'd'.repeat(200);
    const chain = Array.from({ length: 15 }, () => step).join('/');
    // Longer than a path may be, so it is put together from below.
    for (let count = 0; count < 3; count++) {
      const longer = join(parent, 'longer');
      await files.mkdir(join(longer, chain), { recursive: true });
      await files.rename(join(tree, 'content'), join(longer, chain, 'content'));
      await files.rename(longer, join(tree, 'content'));
    }
    await expect(files.rm(tree, { recursive: true })).rejects.toMatchObject({ code: 'ENAMETOOLONG' });

    await removeTree(realFs, tree);

    expect(await files.readdir(parent)).toEqual([]);
  });

  it('throws errors that it cannot repair', async () => {
    const failing = new FailingFs((call) => (call.name === 'rm' ? errno('EIO') : undefined));
    await expect(removeTree(failing.fs, tree)).rejects.toMatchObject({ code: 'EIO' });
  });
});
