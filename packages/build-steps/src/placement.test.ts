import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CopyOrder, placementOfFiles } from './placement.ts';
import type { Source } from './source.ts';
import type { TarItem } from './tar-stream.ts';

const file = (path: string): TarItem => ({
  path,
  type: 'file',
  mode: 0o644,
  mtime: 0,
  size: 1,
  content: async function* () {
    yield Buffer.from('x');
  },
});
const directory: Source = { isDirectory: true, items: [file('a'), file('.b'), file('..c')] };

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'torpor-placement-'));
});
afterEach(() => rm(root, { recursive: true }));

/** Does on this machine what a build does in a sandbox. */
async function place(
  sources: readonly Source[],
  order: Partial<CopyOrder> & { target: string },
): Promise<void> {
  const { archive, command, content } = placementOfFiles(sources, {
    isAdd: false,
    chown: undefined,
    chmod: undefined,
    ...order,
  });
  await mkdir(dirname(archive));
  const chunks: Uint8Array[] = [];
  for await (const chunk of content()) chunks.push(chunk);
  await writeFile(archive, Buffer.concat(chunks));
  await promisify(execFile)('/bin/sh', ['-c', command]);
}

describe('copied files', () => {
  it('leave owner and mode of a directory that exists, and come with names that begin with a dot', async () => {
    const target = join(root, 'there');
    await mkdir(target);
    await chmod(target, 0o1777);
    await place([directory], { target });
    expect((await stat(target)).mode & 0o7777).toBe(0o1777);
    expect((await readdir(target)).sort()).toEqual(['..c', '.b', 'a']);
    await place([directory], { target: join(root, 'new/deep') });
    expect((await readdir(join(root, 'new/deep'))).sort()).toEqual(['..c', '.b', 'a']);
  });

  it.skipIf(process.getuid?.() !== 0)('make new directories for their owner, and keep others', async () => {
    await place([{ isDirectory: false, items: [file('a')] }], {
      target: join(root, 'one/two/'),
      chown: '1234:4321',
    });
    const owners = async (path: string) => {
      const { uid, gid } = await stat(join(root, path));
      return [uid, gid];
    };
    for (const path of ['one', 'one/two', 'one/two/a']) expect(await owners(path)).toEqual([1234, 4321]);
    expect(await owners('.')).toEqual([0, 0]);
  });
});
