import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SandboxView, SessionView, SessionWake, TemplateView } from '@torpor/protocol';
import { dockerArchive, ociArchive, type TestServer, testImage, testServer } from '@torpor/server/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROGRAM, type RunOptions, startTorpor, torpor, torporInProcess } from '../testing/run-torpor.ts';

let server: TestServer;
let env: NonNullable<RunOptions['env']>;
let id: string;
beforeAll(async () => {
  server = await testServer();
  env = { TORPOR_URL: await server.listen(), TORPOR_API_KEY: server.keys.default };
  id = (await run('create', '--name', 'web')).stdout.trim();
});
afterAll(() => server.dispose());

const run = (...args: string[]) => torporInProcess(args, env);
const json = async <T>(...args: string[]): Promise<T> =>
  JSON.parse((await run(...args, '--json')).stdout) as T;

describe('a sandbox from the command line', () => {
  it('is created, listed and shown', async () => {
    expect(id).toMatch(/^sbx_[a-z0-9]{20}$/);
    expect((await run('ls')).stdout).toContain('web');
    expect((await json<SandboxView>('get', 'web')).id).toBe(id);
  });

  it('shows health and disk usage without waking it', async () => {
    expect((await run('health', 'web')).stdout).toMatch(/agent +answers/);
    expect(await json('drives', 'web')).toMatchObject({ items: [{ path: '/' }] });
    expect((await run('df', 'web')).stdout).toMatch(/PATH +SIZE +USED +FREE/);
    await run('pause', 'web');
    expect(await json('health', 'web')).toMatchObject({ state: 'paused', agent: 'not_running' });
    const { code, stderr } = await run('drives', 'web');
    expect([code, stderr]).toEqual([14, expect.stringContaining('The sandbox is paused.')]);
    expect((await json<SandboxView>('get', 'web')).state).toBe('paused');
    await run('resume', 'web');
  });

  it('is paused and resumed by every alias', async () => {
    for (const [sleep, wake] of [
      ['pause', 'resume'],
      ['sleep', 'wake'],
      ['hibernate', 'unpause'],
      ['suspend', 'resume'],
    ] as const) {
      expect((await run(sleep, 'web')).stdout).toContain('is paused: memory and files in ckpt_');
      expect((await json<SandboxView>('get', 'web')).state).toBe('paused');
      expect((await run(wake, 'web')).stdout).toContain('runs, from memory in ckpt_');
    }
  });

  it('is forked, snapshotted, rolled back and killed', async () => {
    const forks = (await run('fork', 'web', '--count', '2')).stdout.trim().split('\n');
    expect(forks).toHaveLength(2);
    const checkpoint = (await run('snapshot', 'web', '--name', 'before')).stdout.trim();
    expect((await run('checkpoints', 'web')).stdout).toContain('before');
    expect((await run('rollback', 'web', checkpoint)).code).toBe(0);
    expect((await run('checkpoints', 'verify', checkpoint)).stdout).toMatch(/health +ok/);
    expect((await run('kill', ...forks)).stdout).toContain('is killed');
    expect((await run('ls', '-q')).stdout).not.toContain(forks[0]);
  });

  it('has events and operations', async () => {
    const { items } = await json<{ items: { type: string }[] }>('events', 'web');
    expect(items.map(({ type }) => type)).toEqual(
      expect.arrayContaining(['sandbox.created', 'sandbox.paused', 'sandbox.resumed']),
    );
    expect((await run('ops', 'web')).stdout).toMatch(/pause +succeeded/);
  });

  it('is found by name after it ended, the newest of that name (R96, R100)', async () => {
    const older = (await run('create', '--name', 'ended')).stdout.trim();
    await run('kill', older);
    const newest = (await run('create', '--name', 'ended')).stdout.trim();
    await run('kill', newest);
    const { items } = await json<{ items: { type: string; sandboxId: string }[] }>('events', 'ended');
    expect(items.at(-1)).toMatchObject({ type: 'sandbox.killed', sandboxId: newest });
    expect(await json('get', 'ended')).toMatchObject({ id: newest, state: 'killed' });
    expect((await run('ops', 'ended')).stdout).toMatch(/kill +succeeded/);
    expect((await run('checkpoints', 'ended')).code).toBe(0);
    expect((await run('ps', 'ended')).code).toBe(0);
    // Commands that change a sandbox do not find ended ones.
    expect((await run('pause', 'ended')).code).toBe(12);
    const living = (await run('create', '--name', 'ended')).stdout.trim();
    expect(await json('get', 'ended')).toMatchObject({ id: living, state: 'running' });
    await run('kill', living);
  });

  it('shows the problem of its checkpoint, and fsck finds it (R85, R108)', async () => {
    const asleep = (await run('create', '--name', 'asleep')).stdout.trim();
    await run('pause', 'asleep');
    const { checkpointId } = await json<SandboxView>('get', 'asleep');
    if (checkpointId === null) throw new Error('It has no checkpoint.');
    expect((await run('get', 'asleep')).stdout).toMatch(/health +ok/);
    server.world.store.takeAway(checkpointId);
    const checked = await run('fsck');
    expect(checked.code).toBe(1);
    expect(checked.stdout).toMatch(new RegExp(`${asleep} +paused +missing +${checkpointId}`));
    expect((await run('get', 'asleep')).stdout).toMatch(/health +missing/);
    expect((await run('ls')).stdout).toContain('files and memory of its checkpoint missing');
    server.world.store.bringBack(checkpointId);
    await run('fsck');
    expect((await run('get', 'asleep')).stdout).toMatch(/health +ok/);
    await run('kill', asleep);
  });

  it('stores files and returns them', async () => {
    const put = await torpor(['files', 'put', 'web', '-', 'notes/a.txt'], { env, stdin: 'remember' });
    expect(put.code).toBe(0);
    expect((await torpor(['files', 'cat', 'web', 'notes/a.txt'], { env })).stdout).toBe('remember');
    expect((await run('files', 'ls', 'web', 'notes')).stdout).toContain('a.txt');
    expect((await run('files', 'rm', 'web', 'notes')).code).toBe(0);
    expect((await run('files', 'cat', 'web', 'notes/a.txt')).code).toBe(12);
  });

  it('is not found with a key of another organisation', async () => {
    expect((await torporInProcess(['get', id], { ...env, TORPOR_API_KEY: server.keys.other })).code).toBe(12);
    expect((await torporInProcess(['get', id], { ...env, TORPOR_API_KEY: '0'.repeat(64) })).code).toBe(11);
    expect((await torporInProcess(['keys', 'ls'], { ...env, TORPOR_API_KEY: server.keys.user })).code).toBe(
      13,
    );
  });
});

describe('a session from the command line', () => {
  it('shows its wakes, and what a rebind or a move has lost (R73, R105)', async () => {
    expect((await run('session', 'send', 'chat', '--command', 'cat', 'hello')).stdout).toContain('hello');
    const { items } = await json<{ items: SessionWake[] }>('session', 'wakes', 'chat');
    expect(items).toMatchObject([{ ordinal: 1, did: 'spawned', lost: [] }]);
    const rebound = await run('session', 'rebind', 'chat');
    expect(rebound.stdout).toMatch(/chat is bound to sbx_.*; lost: processes, files \(written since /);
    const [{ name: runtime }] = (await json<{ items: [{ name: string }] }>('runtimes')).items;
    const moved = await json<SessionView>('session', 'move', 'chat', '--runtime', runtime);
    expect(moved).toMatchObject({ sandbox: { runtime }, change: { lost: ['processes', 'files'] } });
    const shown = (await run('session', 'wakes', 'chat')).stdout;
    expect(
      shown
        .trim()
        .split('\n')
        .map((line) => line.split(/ {2,}/)[2]),
    ).toEqual(['DID', 'spawned', 'rebound', 'rebound']);
    expect(shown).toContain('template');
  });

  it('cannot be moved to an unknown runtime', async () => {
    const refused = await run('session', 'move', 'chat', '--runtime', 'nowhere', '--json');
    expect(refused.code).toBe(14);
    expect(JSON.parse(refused.stderr)).toMatchObject({
      error: { details: { code: 'capability_unsupported' } },
    });
    expect((await run('session', 'move', 'chat')).code).toBe(10);
  });
});

describe('the server from the command line', () => {
  it('lists its runtimes and templates', async () => {
    expect((await run('runtimes')).stdout).toContain('memory+files');
    expect((await run('template', 'ls')).stdout).toContain('base');
  });

  it('creates templates from checkpoints, directories and archives, and deletes them', async () => {
    const place = await mkdtemp(join(tmpdir(), 'torpor-root-'));
    try {
      await writeFile(join(place, 'hello'), 'from a directory');
      const start = ['--start', 'serve', '--port', '3000', '--ready-path', '/', '-e', 'A=1'];
      start.push('--memory', '512', '--cpus', '1.5');
      const made = await json<TemplateView>('template', 'create', 'packed', '--from', place, ...start);
      const service = { name: 'start', command: 'serve', port: 3000, ready: { path: '/' } };
      const resources = { memoryMb: 512, cpus: 1.5 };
      expect(made).toMatchObject({ state: 'ready', services: [service], resources });
      expect((await run('template')).stdout).toMatch(/packed.*512 MB, 1\.5 cpus/);
      const { id: packed } = await json<SandboxView>('create', '-t', 'packed');
      expect(server.runtime.look(packed)?.files['/root']).toContain('from a directory');
      await writeFile(join(place, 'root.tar'), 'from an archive');
      expect((await run('template', 'create', 'tarred', '--from', join(place, 'root.tar'))).stdout).toBe(
        'tarred\n',
      );
      const checkpoint = (await run('snapshot', 'web')).stdout.trim();
      expect((await run('template', 'create', 'seeded', '--from', checkpoint)).code).toBe(0);
      expect((await run('template')).stdout).toMatch(/packed.*seeded.*tarred/s);
      for (const name of ['packed', 'tarred', 'seeded']) {
        expect((await run('template', 'rm', name)).stdout).toBe(`${name} is deleted\n`);
      }
      expect((await run('create', '-t', 'packed')).code).toBe(12);
    } finally {
      await rm(place, { recursive: true });
    }
  });

  it('creates templates from images', async () => {
    const place = await mkdtemp(join(tmpdir(), 'torpor-image-'));
    const create = (...args: string[]) => json<TemplateView>('template', 'create', 'app', ...args);
    try {
      const image = testImage([[{ name: 'hello', content: 'from an image' }]], {
        config: { Cmd: ['serve'] },
      });
      const file = join(place, 'image.tar');
      for (const [flag, bytes] of [
        ['--oci-archive', ociArchive(image)],
        ['--docker-archive', dockerArchive(image)],
      ] as const) {
        await writeFile(file, bytes);
        const made = await create(flag, file, '--entrypoint', '-e', 'A=1');
        expect(made).toMatchObject({ image: { cmd: ['serve'] }, services: [{ command: "exec 'serve'" }] });
        expect((await run('template', 'rm', 'app')).code).toBe(0);
      }
      const login = ['--registry-user', 'ada', '--registry-password-stdin'];
      const fetched = await torpor(
        ['template', 'create', 'app', '--image', '127.0.0.1:1/app:1', ...login, '--json'],
        { env, stdin: 'open sesame\n' },
      );
      expect(JSON.parse(fetched.stderr || fetched.stdout)).toMatchObject({
        error: { message: expect.stringContaining('127.0.0.1') },
      });
    } finally {
      await rm(place, { recursive: true });
    }
  });

  it.each([
    ['no source', []],
    ['two sources', ['--image', 'debian:12', '--from', '/']],
    ['a user without a password', ['--image', 'debian:12', '--registry-user', 'ada']],
    ['a password without a user', ['--image', 'debian:12', '--registry-password-stdin']],
    ['credentials for a directory', ['--from', '/', '--registry-user', 'ada']],
    ['the entrypoint of a directory', ['--from', '/', '--entrypoint']],
  ])('refuses a template with %s before it asks the server', async (_, args) => {
    expect((await run('template', 'create', 'x', ...args)).code).toBe(10);
  });

  it('refuses a template from a missing or unreadable source, and a taken name', async () => {
    const place = await mkdtemp(join(tmpdir(), 'torpor-root-'));
    try {
      const from = (path: string, ...more: string[]) =>
        run('template', 'create', 'x', '--from', path, ...more);
      expect((await from(join(place, 'nothing'))).code).toBe(15);
      expect((await from('/dev/null')).code).toBe(15);
      expect((await from(place, '--port', '80')).code).toBe(10);
      // The directory is removed while it is packed.
      await mkdir(join(place, 'bin'));
      await writeFile(join(place, 'bin', 'tar'), '#!/bin/sh\nprintf half; echo vanished >&2; exit 2\n', {
        mode: 0o755,
      });
      const path = `${join(place, 'bin')}:${process.env['PATH']}`;
      const broken = await torpor(['template', 'create', 'x', '--from', place], {
        env: { ...env, PATH: path },
      });
      expect([broken.code, broken.stderr]).toEqual([15, expect.stringContaining('vanished')]);
      const { items } = await json<{ items: { name: string }[] }>('template');
      expect(items.map(({ name }) => name)).not.toContain('x');
    } finally {
      await rm(place, { recursive: true });
    }
  });

  it('creates and revokes keys', async () => {
    const key = (await run('keys', 'create', 'ci', '--expires', '90d')).stdout.trim();
    expect((await torporInProcess(['runtimes'], { ...env, TORPOR_API_KEY: key })).code).toBe(0);
    const { items } = await json<{ items: { id: string; name: string }[] }>('keys', 'ls');
    const made = items.find(({ name }) => name === 'ci');
    expect((await run('keys', 'revoke', made?.id ?? '')).code).toBe(0);
    expect((await torporInProcess(['runtimes'], { ...env, TORPOR_API_KEY: key })).code).toBe(11);
  });

  it('passes all checks of the doctor', async () => {
    const { checks } = await json<{ checks: { what: string; is: string }[] }>('doctor');
    for (const what of ['Server', 'Disk', 'API key', 'Runtime memory']) {
      expect(checks.find((check) => check.what === what)?.is).not.toBe('wrong');
    }
  });
});

describe('commands in a sandbox', () => {
  it('pass output, input and exit code through, byte for byte', async () => {
    const ran = await torpor(['exec', 'web', 'cat; echo err >&2; exit 7'], { env, stdin: 'in and out' });
    expect(ran).toEqual({ code: 7, stdout: 'in and out', stderr: 'err\n' });
  });

  it('do not wait for input that never ends', async () => {
    expect(await torpor(['exec', 'web', 'echo', 'a b', '--json'], { env })).toMatchObject({
      code: 0,
      stdout: 'a b --json\n',
    });
  });

  it('are one object with --json', async () => {
    await run('pause', 'web');
    const ran = await torpor(['exec', '--json', 'web', 'echo hi; exit 3'], { env });
    expect(ran.code).toBe(3);
    expect(JSON.parse(ran.stdout)).toMatchObject({
      exitCode: 3,
      stdout: 'hi\n',
      stderr: '',
      autoResumed: true,
    });
  });

  it('are killed on an interrupt', async () => {
    const child = startTorpor(['exec', 'web', 'echo here; sleep 4730'], { env });
    await once(child.stdout as NodeJS.ReadableStream, 'data');
    child.kill('SIGINT');
    expect((await once(child, 'close'))[0]).toBe(16);
    await expect.poll(async () => (await run('ps', 'web')).stdout).not.toContain('sleep 4730');
  });

  it('run in the background and have logs', async () => {
    const process = (await run('exec', '-b', 'web', 'echo begun; sleep 4731')).stdout.trim();
    await expect.poll(async () => (await run('logs', 'web', process)).stdout).toBe('begun\n');
    expect((await run('ps', 'web')).stdout).toContain('sleep 4731');
  });

  it.runIf(existsSync('/usr/bin/script'))('have a terminal when they are given one', async () => {
    const line = `${process.execPath} ${PROGRAM} shell web`;
    const child = spawn('/usr/bin/script', ['-qec', line, '/dev/null'], {
      env: { ...process.env, ...env },
      stdio: 'pipe',
    });
    let shown = '';
    child.stdout.on('data', (chunk) => {
      shown += chunk;
    });
    child.stdin.write('echo $((6*7)); tty; exit 9\r');
    const [code] = await once(child, 'close');
    expect(shown).toContain('42');
    expect(shown).toMatch(/\/dev\/pts\/\d+/);
    expect(code).toBe(9);
  });

  it('show their ports', async () => {
    expect((await run('ports', 'web')).code).toBe(0);
  });
});

describe('fsck', () => {
  it('finds no problems', async () => {
    const { code, stdout } = await run('fsck');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^\d+ sandboxes in .*: 0 repaired/);
  });
});

describe('up', () => {
  it('runs a server that other commands find, and stops on a signal', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'torpor-up-'));
    const child = startTorpor(['up', '--port', '0', '--data-dir', dataDir, '--log-level', 'error'], {
      env: { HOME: dataDir },
      cwd: dataDir,
    });
    try {
      let printed = '';
      child.stdout?.on('data', (chunk) => {
        printed += chunk;
      });
      while (!/^torpor ready http/m.test(printed)) await once(child.stdout as NodeJS.ReadableStream, 'data');
      const { code, stdout } = await torporInProcess(['ls', '--json'], { TORPOR_DATA_DIR: dataDir });
      expect([code, JSON.parse(stdout)]).toEqual([0, { items: [], nextCursor: null }]);
      const closed = once(child, 'close');
      child.kill('SIGTERM');
      expect((await closed)[0]).toBe(0);
    } finally {
      child.kill('SIGKILL');
      // As root the runtime keeps its instances outside the data directory and leaves a link.
      const instances = await realpath(join(dataDir, 'process')).catch(() => dataDir);
      await rm(instances, { recursive: true, force: true });
      await rm(dataDir, { recursive: true, force: true });
    }
  });

  it('refuses invalid flags', async () => {
    const { code, stderr } = await torpor(['up', '--port', 'many']);
    expect(code).toBe(10);
    expect(stderr).toContain('--port');
  });
});

describe('organisations from the command line', () => {
  it('are created with quotas, changed, listed and given keys (R104)', async () => {
    expect((await run('org', 'create', 'acme', 'sandboxes=3')).stdout).toBe('acme is created\n');
    expect((await run('org', 'ls')).stdout).toMatch(/acme .*sandboxes=3/);
    expect((await run('org', 'set-quota', 'acme', 'memoryMb=512', 'sandboxes=none')).stdout).toMatch(
      /memoryMb +0 +512/,
    );
    expect(await json('org', 'get', 'acme')).toMatchObject({
      id: 'acme',
      quotas: { memoryMb: 512, sandboxes: null },
    });
    const key = (await run('keys', 'create', 'first', '--org', 'acme')).stdout.trim();
    const inside = { ...env, TORPOR_API_KEY: key };
    expect((await torporInProcess(['ls', '-q', '--org-id', 'acme'], inside)).stdout).toBe('');
    expect((await run('keys', 'ls', '--org', 'acme')).stdout).toContain('first');
    expect((await torporInProcess(['org', 'create', 'sly'], inside)).code).toBe(13);
    expect((await torporInProcess(['usage'], inside)).stdout).toMatch(/running +0\.00 h/);
    expect(await json('usage', '--org', 'acme', '--from', '2026-01-01')).toMatchObject({ orgId: 'acme' });
    expect((await torporInProcess(['usage', '--org', 'default'], inside)).code).toBe(13);
    expect((await run('org', 'set-quota', 'acme', 'sandboxes=many')).code).toBe(10);
  });

  it.each([['ls'], ['get', 'web'], ['pause', 'web'], ['exec', 'web', 'true'], ['events'], ['build', 'ls']])(
    'a foreign --org-id is refused: torpor %s %s (R104)',
    async (...args) => {
      for (const orgId of ['other', 'org_2u8RgDTwcZWrZrZ3sZh24T5FCtz']) {
        const [name = '', ...rest] = args;
        const { code, stderr, stdout } = await run(name, '--org-id', orgId, ...rest);
        expect([code, stdout]).toEqual([13, '']);
        expect(stderr).toContain(`The key belongs to "default" and not to "${orgId}".`);
      }
    },
  );
});
