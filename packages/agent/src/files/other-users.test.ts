import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { type AgentClient, asUser } from '@torpor/envd';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { beginUpload } from '../../testing/broken-upload.ts';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

const PATIENT = { timeout: 20_000 };

/** Every system has this user, and it owns no files. */
const NOBODY = { name: 'nobody', uid: 65534 };

const isRoot = process.getuid?.() === 0;

describe.runIf(isRoot)('an agent that runs as root, for another user', () => {
  let agent: RunningAgent;
  let client: AgentClient;
  let own = '';
  let count = 0;
  const headers = asUser(NOBODY.name);
  const user = NOBODY.name;

  const groups = process.getgroups?.() ?? [];

  beforeAll(async () => {
    // A group of the agent that its users must not get.
    process.setgroups?.([4]);
    agent = await runAgent();
    ({ client } = agent);
    await chmod(agent.directory, 0o755);
  });

  beforeEach(async () => {
    count += 1;
    own = join(agent.directory, `own-${count}`);
    await mkdir(own);
    await chown(own, NOBODY.uid, NOBODY.uid);
  });

  afterAll(async () => {
    process.setgroups?.(groups);
    await agent.stop();
  });

  /** Owners of the directory and of these names in it. */
  const owners = async (directory: string, ...names: string[]) =>
    Promise.all(['', ...names].map(async (name) => (await stat(join(directory, name))).uid));

  it('starts processes with that user’s rights and none of the agent’s', async () => {
    const command = 'id -u; id -g; id -G; cat /etc/shadow; echo x > /dev/stderr';
    const said = await transcribe(client.process.start({ process: shell(command) }, { headers }));
    expect(said.stdout).toBe('65534\n65534\n65534\n');
    expect(said.stderr).toContain('Permission denied');
    expect(said.stderr.endsWith('x\n')).toBe(true);
  });

  it('opens terminals as that user, who can open them by name', async () => {
    const said = await transcribe(
      client.process.start(
        { process: shell('id -u; id -G; echo opened > $(tty)'), pty: { size: { cols: 80, rows: 24 } } },
        { headers },
      ),
    );
    expect(said.pty).toBe('65534\r\n65534\r\nopened\r\n');
  });

  it('changes the owner of the terminal, and never of its own stdin', async () => {
    const path = join(agent.directory, 'stdin-of-the-agent');
    const file = await open(path, 'w+');
    const other = await runAgent({ stdin: file.fd });
    try {
      const pty = { size: { cols: 80, rows: 24 } };
      const starts = Array.from({ length: 10 }, () =>
        transcribe(other.client.process.start({ process: shell('true'), pty }, { headers })),
      );
      await Promise.all(starts);
      expect((await file.stat()).uid).toBe(0);
    } finally {
      await other.stop();
      await file.close();
    }
  });

  it('writes files and directories that belong to that user', async () => {
    await client.files.write(join(own, 'a/b'), 'content', { user, metadata: { key: 'value' } });
    for (const path of ['a', 'a/b']) expect((await stat(join(own, path))).uid).toBe(NOBODY.uid);
    expect(await text(await client.files.read(join(own, 'a/b'), { user }))).toBe('content');
    const { entry } = await client.filesystem.stat({ path: join(own, 'a/b') }, { headers });
    expect(entry).toMatchObject({ owner: NOBODY.name, metadata: { key: 'value' } });
    await client.filesystem.makeDir({ path: join(own, 'dir') }, { headers });
    expect((await stat(join(own, 'dir'))).uid).toBe(NOBODY.uid);
  });

  it('writes, reads, lists, moves and removes in directories that are closed to that user', async () => {
    const closed = join(agent.directory, `closed-${count}`);
    await mkdir(closed, { mode: 0o700 });
    await client.files.write(join(closed, 'new', 'file'), 'content', { user });
    expect(await owners(closed, 'new', 'new/file')).toEqual([0, NOBODY.uid, NOBODY.uid]);
    expect(await text(await client.files.read(join(closed, 'new', 'file'), { user }))).toBe('content');
    const { filesystem } = client;
    const { entries } = await filesystem.listDir({ path: closed, depth: 2 }, { headers });
    expect(entries.map(({ name, owner }) => `${owner} ${name}`)).toEqual(['nobody new', 'nobody file']);
    const moved = { source: join(closed, 'new', 'file'), destination: join(closed, 'other', 'place') };
    await filesystem.move(moved, { headers });
    expect(await owners(closed, 'other', 'other/place')).toEqual([0, NOBODY.uid, NOBODY.uid]);
    await filesystem.makeDir({ path: join(closed, 'a', 'b') }, { headers });
    expect(await owners(closed, 'a', 'a/b')).toEqual([0, NOBODY.uid, NOBODY.uid]);
    await filesystem.remove({ path: join(closed, 'a') }, { headers });
    expect(await readdir(closed)).toEqual(['new', 'other']);
  });

  it('gives an overwritten file to that user, keeps its mode, and leaves its directory unchanged', async () => {
    const directory = join(agent.directory, `of-root-${count}`);
    await mkdir(directory);
    await writeFile(join(directory, 'script'), 'old');
    await chmod(join(directory, 'script'), 0o4755);
    await client.files.write(join(directory, 'script'), 'new', { user });
    expect(await owners(directory, 'script')).toEqual([0, NOBODY.uid]);
    // All bits but setuid, which would let others act as the new owner.
    expect((await stat(join(directory, 'script'))).mode & 0o7777).toBe(0o755);
    expect(await readFile(join(directory, 'script'), 'utf8')).toBe('new');
  });

  it('gives that user the target of a link it writes through, and leaves the link unchanged', async () => {
    await writeFile(join(own, 'target'), 'old');
    await symlink('target', join(own, 'alias'));
    await client.files.write(join(own, 'alias'), 'new', { user });
    expect(await owners(own, 'target')).toEqual([NOBODY.uid, NOBODY.uid]);
    expect((await lstat(join(own, 'alias'))).isSymbolicLink()).toBe(true);
  });

  it('gives that user a composed file', async () => {
    await writeFile(join(own, 'part'), 'secret', { mode: 0o600 });
    const composed = await fetch(`${agent.baseUrl}/files/compose`, {
      method: 'POST',
      body: JSON.stringify({
        source_paths: [join(own, 'part')],
        destination: join(own, 'deep', 'whole'),
        username: user,
      }),
    });
    expect(composed.status).toBe(200);
    expect(await owners(own, 'deep', 'deep/whole')).toEqual([NOBODY.uid, NOBODY.uid, NOBODY.uid]);
  });

  it('writes files in /proc, where no temporary file can be created', async () => {
    const path = `/proc/${agent.pid}/oom_score_adj`;
    await client.files.write(path, '500', { user });
    expect(await readFile(path, 'utf8')).toBe('500\n');
  });

  it('keeps the owners of files that it moves to another filesystem', async () => {
    const memory = await mkdtemp('/dev/shm/torpor-agent-');
    try {
      await mkdir(join(own, 'tree'));
      await writeFile(join(own, 'tree', 'of-root'), 'x');
      await writeFile(join(own, 'tree', 'of-nobody'), 'x');
      await chown(join(own, 'tree', 'of-nobody'), NOBODY.uid, NOBODY.uid);
      await chown(join(own, 'tree'), NOBODY.uid, NOBODY.uid);
      await client.filesystem.move({ source: join(own, 'tree'), destination: join(memory, 'tree') });
      expect(await owners(join(memory, 'tree'), 'of-root', 'of-nobody')).toEqual([NOBODY.uid, 0, NOBODY.uid]);
    } finally {
      await rm(memory, { recursive: true });
    }
  });

  it('leaves files that root writes to root', async () => {
    await client.files.write(join(agent.directory, 'of-root'), 'x', { user: 'root' });
    expect((await stat(join(agent.directory, 'of-root'))).uid).toBe(0);
  });

  it('uses the default user for callers that name none', async () => {
    await client.init({ defaultUser: user, defaultWorkdir: own });
    await client.files.write(join(own, 'by-default'), 'x');
    expect((await stat(join(own, 'by-default'))).uid).toBe(NOBODY.uid);
    expect((await client.filesystem.listDir({ path: '' })).entries.map(({ name }) => name)).toContain(
      'by-default',
    );
    await client.init({ defaultUser: '', defaultWorkdir: '' });
  });

  it('streams large files in both directions', async () => {
    const megabytes = Buffer.alloc(20_000_000, 'x');
    await client.files.write(join(own, 'big'), megabytes, { user });
    const read = await text(await client.files.read(join(own, 'big'), { user }));
    expect(read.length).toBe(20_000_000);
  });

  it('watches directories for that user', async () => {
    const stream = client.filesystem
      .watchDir({ path: own, includeEntry: true }, { headers })
      [Symbol.asyncIterator]();
    expect((await stream.next()).value?.event.case).toBe('start');
    await client.files.write(join(own, 'watched'), 'x', { user });
    const { value } = await stream.next();
    expect(value?.event).toMatchObject({
      case: 'filesystem',
      value: { name: 'watched', entry: { owner: NOBODY.name } },
    });
    await stream.return?.();
  });

  it('leaves nothing of an interrupted upload', async () => {
    const path = `/files?path=${encodeURIComponent(join(own, 'broken'))}&username=${user}`;
    const octets = { 'content-type': 'application/octet-stream' };
    const gzip = gzipSync('x'.repeat(100_000)).subarray(0, 50);
    for (const [headers, first] of [
      [octets, 'half'],
      [{ ...octets, 'content-encoding': 'gzip' }, gzip],
    ] as const) {
      const upload = await beginUpload(agent.baseUrl, path, headers, first);
      await expect.poll(() => readdir(own), PATIENT).toHaveLength(1);
      upload.breakOff();
      await expect.poll(() => readdir(own), PATIENT).toEqual([]);
    }
  });
});
