import { chmod, link, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, FileType } from '@torpor/envd';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';

let agent: RunningAgent;
let files: AgentClient['filesystem'];
let directory = '';
let count = 0;

beforeAll(async () => {
  agent = await runAgent();
  files = agent.client.filesystem;
});

beforeEach(async () => {
  count += 1;
  directory = join(agent.directory, String(count));
  await mkdir(directory);
});

afterAll(() => agent.stop());

const at = (...names: string[]) => join(directory, ...names);

async function codeOf(call: Promise<unknown>): Promise<Code | undefined> {
  return call.then(
    () => undefined,
    (thrown: ConnectError) => thrown.code,
  );
}

describe('Stat', () => {
  it('describes a file', async () => {
    await writeFile(at('a.txt'), 'hello');
    await chmod(at('a.txt'), 0o640);
    const { entry } = await files.stat({ path: at('a.txt') });
    const { mtimeMs } = await stat(at('a.txt'));
    expect(entry).toMatchObject({
      name: 'a.txt',
      path: at('a.txt'),
      type: FileType.FILE,
      size: 5n,
      mode: 0o640,
      permissions: '-rw-r-----',
      metadata: {},
    });
    expect(entry?.symlinkTarget).toBeUndefined();
    expect(Number(entry?.modifiedTime?.seconds)).toBe(Math.floor(mtimeMs / 1000));
    expect(entry?.owner).not.toBe('');
    expect(entry?.group).not.toBe('');
  });

  it('describes a link by its target, and a dangling link as a link', async () => {
    await mkdir(at('dir'));
    await symlink('dir', at('good'));
    await symlink('missing', at('broken'));
    const good = (await files.stat({ path: at('good') })).entry;
    expect(good).toMatchObject({ type: FileType.DIRECTORY, symlinkTarget: at('dir'), name: 'good' });
    expect(good?.permissions).toBe('lrwxrwxrwx');
    expect((await files.stat({ path: at('broken') })).entry).toMatchObject({
      type: FileType.SYMLINK,
      symlinkTarget: at('broken'),
    });
  });

  it('shows the setuid, setgid and sticky bits', async () => {
    await mkdir(at('shared'));
    await chmod(at('shared'), 0o3777);
    expect((await files.stat({ path: at('shared') })).entry?.permissions).toBe('drwxrwsrwt');
  });

  it('reports what is wrong with a path', async () => {
    expect(await codeOf(files.stat({ path: at('missing') }))).toBe(Code.NotFound);
    await writeFile(at('file'), '');
    expect(await codeOf(files.stat({ path: at('file', 'below') }))).toBe(Code.InvalidArgument);
    expect(await codeOf(files.stat({ path: at('zero\0byte') }))).toBe(Code.InvalidArgument);
    expect(await codeOf(files.stat({ path: '~other/x' }))).toBe(Code.InvalidArgument);
  });
});

describe('MakeDir', () => {
  it('creates missing parent directories', async () => {
    const { entry } = await files.makeDir({ path: at('a', 'b', 'c') });
    expect(entry).toMatchObject({ name: 'c', type: FileType.DIRECTORY, permissions: 'drwxr-xr-x' });
    expect((await stat(at('a', 'b', 'c'))).isDirectory()).toBe(true);
  });

  it('answers already_exists for a directory, and refuses the path of a file', async () => {
    await writeFile(at('file'), '');
    expect(await codeOf(files.makeDir({ path: directory }))).toBe(Code.AlreadyExists);
    expect(await codeOf(files.makeDir({ path: at('file') }))).toBe(Code.InvalidArgument);
  });
});

describe('Move', () => {
  it('moves a file and creates the target directory', async () => {
    await writeFile(at('a'), 'content');
    const { entry } = await files.move({ source: at('a'), destination: at('new', 'b') });
    expect(entry).toMatchObject({ name: 'b', path: at('new', 'b') });
    expect(await readFile(at('new', 'b'), 'utf8')).toBe('content');
    expect(await codeOf(files.stat({ path: at('a') }))).toBe(Code.NotFound);
  });

  it('moves metadata along, also of files in a directory', async () => {
    await agent.client.files.write(at('dir', 'a'), 'x', { metadata: { key: 'value' } });
    await files.move({ source: at('dir'), destination: at('other') });
    expect((await files.stat({ path: at('other', 'a') })).entry?.metadata).toEqual({ key: 'value' });
  });

  it('answers not_found and creates nothing when the source does not exist', async () => {
    expect(await codeOf(files.move({ source: at('missing'), destination: at('x', 'y') }))).toBe(
      Code.NotFound,
    );
    expect(await codeOf(files.stat({ path: at('x') }))).toBe(Code.NotFound);
  });
});

describe('ListDir', () => {
  it('lists to the requested depth, each directory before its content', async () => {
    await mkdir(at('b', 'deep', 'deeper'), { recursive: true });
    await writeFile(at('b', 'inner'), '');
    await writeFile(at('a'), '');
    const names = async (depth: number) =>
      (await files.listDir({ path: directory, depth })).entries.map(({ path }) =>
        path.slice(directory.length),
      );
    expect(await names(0)).toEqual(['/a', '/b']);
    expect(await names(1)).toEqual(['/a', '/b']);
    expect(await names(2)).toEqual(['/a', '/b', '/b/deep', '/b/inner']);
    expect(await names(9)).toEqual(['/a', '/b', '/b/deep', '/b/deep/deeper', '/b/inner']);
  });

  it('follows a link in the requested path, and none below it', async () => {
    await mkdir(at('real', 'below'), { recursive: true });
    await symlink('.', at('real', 'loop'));
    await symlink('real', at('alias'));
    const { entries } = await files.listDir({ path: at('alias'), depth: 5 });
    expect(entries.map(({ path }) => path)).toEqual([at('alias', 'below'), at('alias', 'loop')]);
  });

  it('reports what is wrong', async () => {
    await writeFile(at('file'), '');
    expect(await codeOf(files.listDir({ path: at('missing') }))).toBe(Code.NotFound);
    expect(await codeOf(files.listDir({ path: at('file') }))).toBe(Code.InvalidArgument);
  });

  it.each(['new\nline', '-rf', 'ünï 文', '"quoted"', ' ', '%2e%2e', '...'])(
    'handles the name %j',
    async (name) => {
      await writeFile(at(name), name);
      const { entries } = await files.listDir({ path: directory });
      expect(entries.map((entry) => entry.name)).toEqual([name]);
      await files.move({ source: at(name), destination: at(`${name}!`) });
      await files.remove({ path: at(`${name}!`) });
      expect((await files.listDir({ path: directory })).entries).toEqual([]);
    },
  );
});

describe('Remove', () => {
  it('removes a tree, and succeeds when it does not exist', async () => {
    await mkdir(at('a', 'b'), { recursive: true });
    await files.remove({ path: at('a') });
    await files.remove({ path: at('a') });
    expect(await codeOf(files.stat({ path: at('a') }))).toBe(Code.NotFound);
  });

  it('removes a link and not its target', async () => {
    await writeFile(at('kept'), 'x');
    await symlink('kept', at('alias'));
    await link(at('kept'), at('second'));
    await files.remove({ path: at('alias') });
    expect(await readFile(at('kept'), 'utf8')).toBe('x');
  });

  it('does not remove /', async () => {
    expect(await codeOf(files.remove({ path: '/' }))).toBe(Code.InvalidArgument);
  });
});
