import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { digestOf, tarStream } from '@torpor/build-steps';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BuildContext } from './build-context.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-context-'));
});
afterEach(() => rm(directory, { recursive: true }));

async function files(contents: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(contents)) {
    await mkdir(join(directory, path, '..'), { recursive: true });
    await writeFile(join(directory, path), text);
  }
}
const open = () => BuildContext.open(directory, join(directory, 'Dockerfile'));
const paths = async (source: string) =>
  (await (await open()).find(source)).map(({ isDirectory, items }) => [
    isDirectory,
    ...items.map(({ path }) => path),
  ]);

describe('the build context', () => {
  it('has files, directories and patterns, and nothing outside', async () => {
    await files({ 'a.txt': '1', 'b.txt': '2', 'dir/c': '3', 'dir/deep/d': '4' });
    expect(await paths('a.txt')).toEqual([[false, 'a.txt']]);
    expect(await paths('./dir')).toEqual([[true, 'c', 'deep', 'deep/d']]);
    expect(await paths('*.txt')).toEqual([
      [false, 'a.txt'],
      [false, 'b.txt'],
    ]);
    expect(await paths('../../dir/c')).toEqual([[false, 'c']]);
    expect(await paths('missing')).toEqual([]);
  });

  it('leaves out what .dockerignore names, except what a later rule takes back', async () => {
    await files({
      '.dockerignore': '# note\n*.log\n**/*.tmp\nnode_modules\nsecret/\n!secret/public\n',
      'a.log': '',
      'src/a.log': '',
      'src/x.tmp': '',
      'node_modules/m/index.js': '',
      'secret/key': '',
      'secret/public': '',
    });
    expect(await paths('.')).toEqual([
      [true, '.dockerignore', 'secret', 'secret/public', 'src', 'src/a.log'],
    ]);
    expect(await paths('a.log')).toEqual([]);
    expect(await paths('node_modules')).toEqual([]);
    await writeFile(join(directory, 'Dockerfile.dockerignore'), 'src');
    expect((await paths('.'))[0]).toContain('a.log');
  });

  it('takes names that begin with a dot like all others, in .dockerignore and in patterns', async () => {
    await files({ '.dockerignore': '*\n!src\n**/*.log\n', '.env': '', '.git/config': '', 'src/.x.log': '' });
    await files({ 'src/.babelrc': '', 'src/a': '' });
    expect(await paths('.')).toEqual([[true, 'src', 'src/.babelrc', 'src/a']]);
    expect(await paths('src/*')).toEqual([
      [false, '.babelrc'],
      [false, 'a'],
    ]);
  });

  it('follows links that are named as a source, inside the context', async () => {
    await files({ '.dockerignore': 'secret', 'dir/a': '1', secret: '2' });
    const links = {
      out: '../../etc/passwd',
      root: '/dir',
      'dir/up': '../dir/a',
      circle: 'circle',
      key: 'secret',
    };
    for (const [path, target] of Object.entries(links)) await symlink(target, join(directory, path));
    expect(await paths('dir/up')).toEqual([[false, 'up']]);
    const [source] = await (await open()).find('dir/up');
    expect(source?.items).toMatchObject([{ type: 'file', size: 1 }]);
    expect(await paths('root')).toEqual([[true, 'a', 'up']]);
    expect([await paths('out'), await paths('circle'), await paths('key')]).toEqual([[], [], []]);
  });

  it('has a digest of names, modes and contents, and not of times', async () => {
    await files({ 'dir/a': 'one' });
    const digest = async () => digestOf(await (await open()).find('dir'));
    const first = await digest();
    await utimes(join(directory, 'dir/a'), 1, 1);
    expect(await digest()).toBe(first);
    await chmod(join(directory, 'dir/a'), 0o755);
    const second = await digest();
    await writeFile(join(directory, 'dir/a'), 'two');
    expect(new Set([first, second, await digest()]).size).toBe(3);
  });

  it('is packed as an archive that tar unpacks', async () => {
    const long = `${'long/'.repeat(30)}name`;
    await files({ [`dir/${long}`]: 'far', 'dir/ünï': 'x'.repeat(1000) });
    await symlink('ünï', join(directory, 'dir/link'));
    const [source] = await (await open()).find('dir');
    const chunks: Uint8Array[] = [];
    for await (const chunk of tarStream(source?.items ?? [])) chunks.push(chunk);
    await writeFile(join(directory, 'a.tar'), Buffer.concat(chunks));
    const out = join(directory, 'out');
    await mkdir(out);
    const run = promisify(execFile);
    await run('tar', ['-x', '-f', join(directory, 'a.tar'), '-C', out]);
    expect((await run('diff', ['-r', '--no-dereference', join(directory, 'dir'), out])).stdout).toBe('');
  });
});
