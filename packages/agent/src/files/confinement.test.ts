import { mkdir, mkdtemp, readFile, realpath, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Code, type ConnectError } from '@connectrpc/connect';
import { type AgentClient, asUser, FileType } from '@torpor/envd';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

let agent: RunningAgent;
let client: AgentClient;
let outside = '';

beforeAll(async () => {
  agent = await runAgent({ confined: true });
  ({ client } = agent);
  outside = await realpath(await mkdtemp(join(tmpdir(), 'torpor-outside-')));
  await writeFile(join(outside, 'secret'), 'secret');
  await symlink(outside, join(agent.directory, 'link-out'));
  await symlink(join(outside, 'secret'), join(agent.directory, 'link-to-file'));
  await symlink(join(outside, 'not-yet'), join(agent.directory, 'dangling'));
  await symlink('link-out', join(agent.directory, 'link-to-link'));
  await symlink('../../../../../../../../../../etc', join(agent.directory, 'up'));
});

afterAll(async () => {
  await agent.stop();
  await rm(outside, { recursive: true });
});

async function codeOf(call: Promise<unknown>): Promise<Code | undefined> {
  return call.then(
    () => undefined,
    (thrown: ConnectError) => thrown.code,
  );
}

describe('a confined agent', () => {
  it('uses its directory as the home, under each of its names', async () => {
    await client.files.write('a/relative', '1');
    for (const path of [
      'a/relative',
      '~/a/relative',
      './a/../a/relative',
      '/home/user/a/relative',
      join(agent.directory, 'a/relative'),
    ]) {
      expect(await text(await client.files.read(path))).toBe('1');
    }
    const { entries } = await client.filesystem.listDir({ path: '' });
    expect(entries.map(({ name }) => name)).toContain('a');
    const said = await transcribe(client.process.start({ process: shell('pwd; echo $HOME') }));
    expect(said.stdout).toBe(`${agent.directory}\n${agent.directory}\n`);
  });

  const leaving = [
    '..',
    '../secret',
    'a/../../secret',
    '~/../secret',
    '/etc/passwd',
    '/',
    '/home/user/../../etc/passwd',
    '/home/users',
    'link-out/secret',
    'link-to-link/secret',
    'link-out/sub/new',
    'up/passwd',
    'dangling/below',
  ];

  it.each([...leaving, 'link-to-file', 'dangling'])('neither reads nor writes %s', async (path) => {
    await expect(client.files.read(path)).rejects.toMatchObject({ code: 'forbidden' });
    await expect(client.files.write(path, 'x')).rejects.toMatchObject({ code: 'forbidden' });
    expect(await readFile(join(outside, 'secret'), 'utf8')).toBe('secret');
    await expect(stat(join(outside, 'not-yet'))).rejects.toThrow();
  });

  it.each(leaving)('refuses every other operation on %s', async (path) => {
    const { filesystem } = client;
    expect(await codeOf(filesystem.stat({ path }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.listDir({ path }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.makeDir({ path: `${path}/made` }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.remove({ path }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.move({ source: path, destination: 'got-it' }))).toBe(
      Code.PermissionDenied,
    );
    await client.files.write('mine', 'x');
    expect(await codeOf(filesystem.move({ source: 'mine', destination: path }))).toBe(Code.PermissionDenied);
    expect(await codeOf(filesystem.createWatcher({ path }))).toBe(Code.PermissionDenied);
    const compose = await fetch(`${agent.baseUrl}/files/compose`, {
      method: 'POST',
      body: JSON.stringify({ source_paths: ['mine'], destination: path }),
    });
    expect(compose.status).toBe(403);
  });

  it('describes a link that leads out without its target, and can remove the link', async () => {
    await symlink(outside, join(agent.directory, 'removable'));
    const { entry } = await client.filesystem.stat({ path: 'removable' });
    expect(entry).toMatchObject({ type: FileType.SYMLINK, symlinkTarget: outside });
    await client.filesystem.remove({ path: 'removable' });
    expect(await readFile(join(outside, 'secret'), 'utf8')).toBe('secret');
  });

  it('does not list the target of a link that leads out', async () => {
    const { entries } = await client.filesystem.listDir({ path: '', depth: 5 });
    expect(entries.map(({ path }) => path).filter((path) => path.endsWith('secret'))).toEqual([]);
    expect(await codeOf(client.filesystem.listDir({ path: 'link-out' }))).toBe(Code.PermissionDenied);
  });

  it('follows links that stay inside', async () => {
    await mkdir(join(agent.directory, 'real'));
    await symlink('real', join(agent.directory, 'inner'));
    await client.files.write('inner/file', 'x');
    expect(await readFile(join(agent.directory, 'real/file'), 'utf8')).toBe('x');
  });

  it('does not remove or move its own root', async () => {
    for (const path of ['', '~', '.', agent.directory]) {
      expect(await codeOf(client.filesystem.remove({ path }))).toBe(Code.InvalidArgument);
      expect(await codeOf(client.filesystem.move({ source: path, destination: 'x' }))).toBe(
        Code.InvalidArgument,
      );
    }
  });

  it('has one user, which also answers to the default name', async () => {
    await client.init({ defaultUser: 'user' });
    const said = await transcribe(
      client.process.start({ process: shell('id -u') }, { headers: asUser('user') }),
    );
    expect(said.stdout).toBe(`${process.getuid?.()}\n`);
    const nobody = transcribe(
      client.process.start({ process: shell('id -u') }, { headers: asUser('nobody') }),
    );
    expect(await codeOf(nobody)).toBe(Code.PermissionDenied);
  });

  it('starts processes in its root when they ask for /home/user', async () => {
    await client.filesystem.makeDir({ path: 'app' });
    const start = { ...shell('pwd'), cwd: '/home/user/app' };
    expect((await transcribe(client.process.start({ process: start }))).stdout).toBe(
      `${agent.directory}/app\n`,
    );
  });

  it('lists only the ports of its own sandbox', async () => {
    await client.init({ sandboxId: 'sbx_confined' });
    const foreign = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => foreign.once('listening', resolve));
    const listen = 'const s = require("net").createServer().listen(0, () => console.log(s.address().port))';
    // The parent is gone, so only the sandbox variable identifies the process.
    const said = await transcribe(
      client.process.start({
        process: shell(`setsid ${process.execPath} -e '${listen}' & echo pid $!; read`),
      }),
      ({ stdout }) => /^\d+$/m.test(stdout),
    );
    const [, own] = /^(\d+)$/m.exec(said.stdout) ?? [];
    const ports = (await client.ports()).map(({ port }) => port);
    expect(ports).toContain(Number(own));
    expect(ports).not.toContain((foreign.address() as { port: number }).port);
    foreign.close();
    const [, listener] = /^pid (\d+)$/m.exec(said.stdout) ?? [];
    process.kill(Number(listener), 'SIGKILL');
  });

  it('counts only the memory of its own processes', async () => {
    const { memUsed, memTotal } = await client.metrics();
    expect(memUsed).toBeLessThan(memTotal / 4);
  });
});
