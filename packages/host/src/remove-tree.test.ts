import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RemoveTreeFs, removeTree } from './remove-tree.ts';

let parent: string;
let tree: string;
beforeEach(async () => {
  parent = await files.mkdtemp(join(tmpdir(), 'remove-tree-'));
  tree = join(parent, 'tree');
  await files.mkdir(join(tree, 'content'), { recursive: true });
});
afterEach(() => files.rm(parent, { recursive: true, force: true }));

/** A file system whose first `rm` fails with this code. */
function failingFirst(code: string): { readonly fs: RemoveTreeFs; readonly madeWritable: string[] } {
  const madeWritable: string[] = [];
  let isFirst = true;
  const fs: RemoveTreeFs = {
    ...files,
    rm: async (path, options) => {
      const fails = isFirst;
      isFirst = false;
      if (fails) throw Object.assign(new Error(code), { code });
      await files.rm(path, options);
    },
    chmod: async (path, mode) => {
      madeWritable.push(path.toString());
      await files.chmod(path, mode);
    },
  };
  return { fs, madeWritable };
}

describe('removeTree', () => {
  it('does nothing when the tree does not exist', async () => {
    await removeTree(join(parent, 'absent'));
    expect(await files.readdir(parent)).toEqual(['tree']);
  });

  it('does not follow a symbolic link out of the tree', async () => {
    await files.mkdir(join(parent, 'outside'));
    await files.symlink(join(parent, 'outside'), join(tree, 'content', 'link'));
    await removeTree(tree);
    expect(await files.readdir(parent)).toEqual(['outside']);
  });

  it('removes directories without write permission', async () => {
    const locked = join(tree, 'content', 'locked');
    await files.mkdir(join(locked, 'below'), { recursive: true });
    for (const path of [join(locked, 'below'), locked]) await files.chmod(path, 0o500);
    // Root may delete from such directories, so the failure that another user would get is simulated.
    const { fs, madeWritable } = failingFirst('EACCES');
    await removeTree(tree, fs);
    expect(await files.readdir(parent)).toEqual([]);
    expect(madeWritable).toEqual(expect.arrayContaining([locked, join(locked, 'below')]));
  });

  it('tries again when a file was created during the first attempt', async () => {
    const { fs } = failingFirst('ENOTEMPTY');
    await removeTree(tree, fs);
    expect(await files.readdir(parent)).toEqual([]);
  });

  it('removes paths longer than the kernel accepts, also after an interrupted removal', async () => {
    await files.mkdir(join(tree, 'lifted-0'));
    const chain = Array.from({ length: 15 }, () => 'd'.repeat(200)).join('/');
    // The whole path is longer than one call accepts, so it is assembled from the bottom upwards.
    for (let count = 0; count < 3; count++) {
      const longer = join(parent, 'longer');
      await files.mkdir(join(longer, chain), { recursive: true });
      await files.rename(join(tree, 'content'), join(longer, chain, 'content'));
      await files.rename(longer, join(tree, 'content'));
    }
    await expect(files.rm(tree, { recursive: true })).rejects.toMatchObject({ code: 'ENAMETOOLONG' });

    await removeTree(tree);

    expect(await files.readdir(parent)).toEqual([]);
  });

  it('throws a failure that it cannot repair', async () => {
    const { fs } = failingFirst('EIO');
    await expect(removeTree(tree, fs)).rejects.toMatchObject({ code: 'EIO' });
  });
});
