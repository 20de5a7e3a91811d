import { chmod, chown, mkdir, open, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, asUser } from '@torpor/envd';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { beginUpload } from '../testing/broken-upload.ts';
import { type RunningAgent, runAgent } from '../testing/running-agent.ts';
import { shell, transcribe } from '../testing/transcript.ts';

const PATIENT = { timeout: 20_000 };

/** Every system has this user, and nothing belongs to it. */
const NOBODY = { name: 'nobody', uid: 65534 };

const isRoot = process.getuid?.() === 0;

describe.runIf(isRoot)('an agent that is root, for another user', () => {
  let agent: RunningAgent;
  let client: AgentClient;
  let own = '';
  let count = 0;
  const headers = asUser(NOBODY.name);
  const user = NOBODY.name;

  const groups = process.getgroups?.() ?? [];

  beforeAll(async () => {
    // A group that the agent has and its users must not get.
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
    await writeFile(join(agent.directory, 'closed'), 'secret', { mode: 0o600 });
  });

  afterAll(async () => {
    process.setgroups?.(groups);
    await agent.stop();
  });

  /** The one file worker of the agent. */
  const worker = async () => {
    const children = await readFile(`/proc/${agent.pid}/task/${agent.pid}/children`, 'utf8');
    for (const child of children.trim().split(' ')) {
      const line = await readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => '');
      if (line.includes('--file-worker')) return child;
    }
    return undefined;
  };

  const codeOf = (call: Promise<unknown>) =>
    call.then(
      () => undefined,
      (thrown: ConnectError) => thrown.code,
    );

  it('starts processes with that user’s rights and none of its own', async () => {
    const command = 'id -u; id -g; id -G; cat /etc/shadow; echo x > /dev/stderr';
    const said = await transcribe(client.process.start({ process: shell(command) }, { headers }));
    expect(said.stdout).toBe('65534\n65534\n65534\n');
    expect(said.stderr).toContain('Permission denied');
    expect(said.stderr.endsWith('x\n')).toBe(true);
  });

  it('opens terminals with them, which the user can open by name', async () => {
    const said = await transcribe(
      client.process.start(
        { process: shell('id -u; id -G; echo opened > $(tty)'), pty: { size: { cols: 80, rows: 24 } } },
        { headers },
      ),
    );
    expect(said.pty).toBe('65534\r\n65534\r\nopened\r\n');
  });

  it('gives away the terminal, and never what stands behind its own stdin', async () => {
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

  it('writes files that belong to that user, directories too', async () => {
    await client.files.write(join(own, 'a/b'), 'content', { user, metadata: { key: 'value' } });
    for (const path of ['a', 'a/b']) expect((await stat(join(own, path))).uid).toBe(NOBODY.uid);
    expect(await text(await client.files.read(join(own, 'a/b'), { user }))).toBe('content');
    const { entry } = await client.filesystem.stat({ path: join(own, 'a/b') }, { headers });
    expect(entry).toMatchObject({ owner: NOBODY.name, metadata: { key: 'value' } });
    await client.filesystem.makeDir({ path: join(own, 'dir') }, { headers });
    expect((await stat(join(own, 'dir'))).uid).toBe(NOBODY.uid);
  });

  it('carries no worker through a sleep that nobody needed since the last', async () => {
    const path = join(own, 'a');
    const write = () => client.files.write(path, 'x', { user });
    await write();
    await client.rest();
    expect(await worker()).toBeDefined();
    await client.rest();
    expect(await worker()).toBeUndefined();
    // Nobody notices, whenever it happens.
    await Promise.all([write(), client.rest(), write(), client.rest(), write()]);
    expect(await text(await client.files.read(path, { user }))).toBe('x');
  });

  it('lets the kernel decide what that user may do', async () => {
    const closed = join(agent.directory, 'closed');
    await expect(client.files.read(closed, { user })).rejects.toMatchObject({ code: 'forbidden' });
    await expect(client.files.write(closed, 'x', { user })).rejects.toMatchObject({ code: 'forbidden' });
    await expect(client.files.write(join(agent.directory, 'new'), 'x', { user })).rejects.toMatchObject({
      code: 'forbidden',
    });
    const { filesystem } = client;
    expect(await codeOf(filesystem.remove({ path: closed }, { headers }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.move({ source: closed, destination: join(own, 'x') }, { headers }))).toBe(
      Code.PermissionDenied,
    );
    expect(await codeOf(filesystem.makeDir({ path: '/root/x' }, { headers }))).toBe(Code.PermissionDenied);
    const composed = await fetch(`${agent.baseUrl}/files/compose`, {
      method: 'POST',
      body: JSON.stringify({ source_paths: [closed], destination: join(own, 'x'), username: user }),
    });
    expect(composed.status).toBe(403);
    expect(await readFile(closed, 'utf8')).toBe('secret');
  });

  it('may write a file of the user in a directory that is not', async () => {
    const path = join(agent.directory, 'lent');
    await writeFile(path, 'old');
    await chown(path, NOBODY.uid, NOBODY.uid);
    await client.files.write(path, 'new', { user });
    expect(await readFile(path, 'utf8')).toBe('new');
    expect((await readdir(agent.directory)).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('keeps root’s files root’s', async () => {
    await client.files.write(join(agent.directory, 'of-root'), 'x', { user: 'root' });
    expect((await stat(join(agent.directory, 'of-root'))).uid).toBe(0);
    expect(await text(await client.files.read(join(agent.directory, 'closed')))).toBe('secret');
  });

  it('takes the user the server set for callers that name none', async () => {
    await client.init({ defaultUser: user, defaultWorkdir: own });
    await client.files.write(join(own, 'by-default'), 'x');
    expect((await stat(join(own, 'by-default'))).uid).toBe(NOBODY.uid);
    expect((await client.filesystem.listDir({ path: '' })).entries.map(({ name }) => name)).toContain(
      'by-default',
    );
    await client.init({ defaultUser: '', defaultWorkdir: '' });
  });

  it('streams much in both directions', async () => {
    const megabytes = Buffer.alloc(20_000_000, 'x');
    await client.files.write(join(own, 'big'), megabytes, { user });
    const read = await text(await client.files.read(join(own, 'big'), { user }));
    expect(read.length).toBe(20_000_000);
  });

  it('watches', async () => {
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

  it('leaves nothing of an upload that breaks off', async () => {
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

  it('answers before it has been sent everything, when it does not want it', async () => {
    const huge = Buffer.alloc(30_000_000);
    await expect(client.files.write('/root/huge', huge, { user })).rejects.toMatchObject({
      code: 'forbidden',
    });
    await client.files.write(join(own, 'after'), 'x', { user });
  });

  it('does not pass half a file off as a whole one when its worker is killed', async () => {
    await client.files.write(join(own, 'big'), Buffer.alloc(50_000_000, 'x'), { user });
    const response = await fetch(
      `${agent.baseUrl}/files?username=${user}&path=${encodeURIComponent(join(own, 'big'))}`,
    );
    const reader = response.body?.getReader();
    await reader?.read();
    process.kill(Number(await worker()), 'SIGKILL');
    const rest = async () => {
      while (!(await reader?.read())?.done);
    };
    await expect(rest()).rejects.toThrow();
  });

  it('starts a new worker when one is killed', async () => {
    await client.files.write(join(own, 'a'), 'x', { user });
    const first = await worker();
    process.kill(Number(first), 'SIGKILL');
    await expect
      .poll(
        () =>
          client.files.write(join(own, 'b'), 'x', { user }).then(
            () => 'written',
            () => 'refused',
          ),
        { timeout: 20_000 },
      )
      .toBe('written');
    expect(await worker()).not.toBe(first);
  });

  it('gives a worker no rights and no secrets', async () => {
    await client.files.write(join(own, 'a'), 'x', { user });
    const status = await readFile(`/proc/${await worker()}/status`, 'utf8');
    expect(status).toMatch(/^Uid:\t65534\t65534\t65534\t65534$/m);
    expect(status).toMatch(/^Gid:\t65534\t65534\t65534\t65534$/m);
    expect(status).toMatch(/^Groups:\t\s*$/m);
    expect(status).toMatch(/^CapEff:\t0+$/m);
  });
});
