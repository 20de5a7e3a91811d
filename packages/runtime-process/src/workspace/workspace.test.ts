import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import * as files from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { SealedCheckpoint } from '@torpor/engine';
import { makeId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inodeOf } from '../../testing/process-world.ts';
import { workspaceIn } from '../checkpoint-content.ts';
import { needsOf } from '../checkpoint-needs.ts';
import type { Baseline } from './baseline.ts';
import { captureWorkspace, restoreWorkspace } from './workspace.ts';

const run = promisify(execFile);
const { signal } = new AbortController();

let top: string;
let home: string;

beforeEach(async () => {
  top = await files.mkdtemp(join(tmpdir(), 'torpor-w-'));
  home = join(top, 'home');
  await files.mkdir(home);
});
afterEach(async () => {
  await run('chmod', ['-R', 'u+rwx', top]);
  await files.rm(top, { recursive: true });
});

const write = (path: string, text: string | Buffer) => files.writeFile(join(home, path), text);

async function captured(
  baseline?: Baseline,
): Promise<{ checkpoint: SealedCheckpoint; content: string; next: Baseline }> {
  const id = makeId('ckpt', randomBytes);
  const content = join(top, id);
  await files.mkdir(content);
  const next = await captureWorkspace(home, { checkpointId: id, path: content }, baseline, signal);
  const checkpoint = { id, parts: { files: true, memory: false }, needs: needsOf(null), path: content };
  return { checkpoint, content, next };
}

let copies = 0;
async function started(checkpoint: SealedCheckpoint): Promise<{ place: string; baseline: Baseline }> {
  const place = join(top, `started-${copies++}`);
  return { place, baseline: await restoreWorkspace(checkpoint, place, null, signal) };
}

/** Times that are restored exactly. Another test covers the precision of others. */
async function ageAll(): Promise<void> {
  await run('find', [home, '-depth', '-exec', 'touch', '-h', '-d', '@1500000000.5', '{}', '+']);
}

/** All properties of a tree as one text. */
async function describeTree(of: string): Promise<string> {
  const lines: string[] = [];
  const names = await files.readdir(of, { recursive: true });
  for (const name of ['.', ...names.sort()]) {
    const path = join(of, name);
    const stats = await files.lstat(path);
    const { mode, mtimeMs, nlink } = stats;
    const kind = stats.isDirectory()
      ? 'directory'
      : stats.isSymbolicLink()
        ? await files.readlink(path)
        : 'file';
    const content = stats.isFile()
      ? createHash('sha256')
          .update(await files.readFile(path))
          .digest('hex')
      : '';
    const links = stats.isDirectory() ? 0 : nlink;
    lines.push(`${name} ${mode.toString(8)} ${mtimeMs} ${kind} ${links} ${content}`);
  }
  return lines.join('\n');
}

describe('a workspace that is captured and restored', () => {
  it('keeps its files, modes, times, symbolic links, hard links and empty directories', async () => {
    await write('a', 'one');
    await files.chmod(join(home, 'a'), 0o640);
    await files.mkdir(join(home, 'deep/er/empty'), { recursive: true });
    await files.chmod(join(home, 'deep'), 0o2750);
    await write('deep/script', '#!/bin/sh\n');
    await files.chmod(join(home, 'deep/script'), 0o4755);
    await files.symlink('../a', join(home, 'deep/link'));
    await files.symlink('/nowhere', join(home, 'dangling'));
    await write('twin', 'same');
    await files.link(join(home, 'twin'), join(home, 'deep/twin'));
    await ageAll();
    await files.utimes(join(home, 'deep'), 1_300_000_000, 1_300_000_000);
    await files.lutimes(join(home, 'dangling'), 1_400_000_000, 1_400_000_000);
    const before = await describeTree(home);

    const { place } = await started((await captured()).checkpoint);

    expect(await describeTree(place)).toBe(before);
    expect(await inodeOf(join(place, 'twin'))).toBe(await inodeOf(join(place, 'deep/twin')));
  });

  it('keeps its times to the microsecond, and loses nothing more over many cycles', async () => {
    await write('a', 'one');
    const stamp = async (of: string) => (await files.lstat(join(of, 'a'), { bigint: true })).mtimeNs;
    const exact = await stamp(home);
    const first = await started((await captured()).checkpoint);
    const kept = await stamp(first.place);
    expect(Math.abs(Number(kept - exact))).toBeLessThan(1_000);
    home = first.place;
    for (let cycle = 0; cycle < 3; cycle++) {
      home = (await started((await captured()).checkpoint)).place;
      expect(await stamp(home)).toBe(kept);
    }
  });

  it('keeps names that are not UTF-8, and names of built-in object properties', async () => {
    const odd = Buffer.concat([Buffer.from(`${home}/odd`), Buffer.of(0xff, 0x80)]);
    await files.writeFile(odd, 'odd');
    await files.chmod(odd, 0o000);
    for (const name of ['__proto__', 'constructor', 'a\nb', '-rf', 'ä…']) {
      await write(name, name);
      await files.chmod(join(home, name), 0o100);
    }
    const { place } = await started((await captured()).checkpoint);
    for (const name of ['__proto__', 'constructor', 'a\nb', '-rf', 'ä…']) {
      expect((await files.lstat(join(place, name))).mode & 0o777).toBe(0o100);
    }
    const copied = Buffer.concat([Buffer.from(`${place}/odd`), Buffer.of(0xff, 0x80)]);
    expect((await files.lstat(copied)).size).toBe(3);
  });

  it('keeps its named pipes and leaves out sockets', async () => {
    await run('mkfifo', ['-m', '640', join(home, 'fifo')]);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(home, 'socket'), resolve));
    try {
      const { place } = await started((await captured()).checkpoint);
      expect(await files.readdir(place)).toEqual(['fifo']);
      const fifo = await files.lstat(join(place, 'fifo'));
      expect([fifo.isFIFO(), fifo.mode & 0o777]).toEqual([true, 0o640]);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it('keeps holes, and copies large files completely', async () => {
    const sparse = await files.open(join(home, 'sparse'), 'w');
    await sparse.truncate(256 << 20);
    await sparse.write(Buffer.from('middle'), 0, 6, 128 << 20);
    await sparse.close();
    const big = randomBytes(20 << 20);
    await write('big', big);
    const { place } = await started((await captured()).checkpoint);
    const { size, blocks } = await files.lstat(join(place, 'sparse'));
    expect(size).toBe(256 << 20);
    expect(blocks * 512).toBeLessThan(1 << 20);
    const { stdout } = await run('cmp', [join(home, 'sparse'), join(place, 'sparse')]);
    expect(stdout).toBe('');
    expect((await files.readFile(join(place, 'big'))).equals(big)).toBe(true);
  });
});

describe('a sealed workspace', () => {
  it('never shares a file with a live workspace', async () => {
    await write('a', 'one');
    const { checkpoint, content } = await captured();
    const { place } = await started(checkpoint);
    const inodes = [join(home, 'a'), join(workspaceIn(content), 'a'), join(place, 'a')].map(inodeOf);
    expect(new Set(await Promise.all(inodes)).size).toBe(3);
  });

  it('shares exactly the unchanged files with the previous one', async () => {
    for (const name of ['same', 'edited', 'touched', 'replaced', 'moded']) await write(name, 'as it was');
    const first = await captured();
    const { place, baseline } = await started(first.checkpoint);
    home = place;
    await write('edited', 'as it is!');
    const { mtime } = await files.stat(join(home, 'touched'));
    await write('touched', 'as it is?');
    await files.utimes(join(home, 'touched'), mtime, mtime);
    await files.writeFile(join(home, 'new'), 'as it was');
    await files.rename(join(home, 'new'), join(home, 'replaced'));
    await files.chmod(join(home, 'moded'), 0o600);

    const second = await captured(baseline);

    const isShared = async (name: string) => {
      const [a, b] = [first, second].map(({ content }) => inodeOf(join(workspaceIn(content), name)));
      return (await a) === (await b);
    };
    expect(await isShared('same')).toBe(true);
    for (const name of ['edited', 'touched', 'replaced', 'moded']) expect(await isShared(name)).toBe(false);
    const sealed = await files.readFile(join(workspaceIn(second.content), 'touched'), 'utf8');
    expect(sealed).toBe('as it is?');
    expect(await files.readFile(join(workspaceIn(first.content), 'edited'), 'utf8')).toBe('as it was');
  });

  it('does not let a file be shared that changed right before the capture', async () => {
    await write('old', 'text');
    await expect
      .poll(async () => Date.now() - (await files.stat(join(home, 'old'))).ctimeMs)
      .toBeGreaterThan(200);
    await write('young', 'text');
    const { next } = await captured();
    expect([...next.files.keys()]).toEqual(['old']);
  });

  it('does not share a file of the previous one that was changed there', async () => {
    await write('a', 'good');
    const first = await captured();
    const { place, baseline } = await started(first.checkpoint);
    home = place;
    await files.writeFile(join(workspaceIn(first.content), 'a'), 'evil');
    const second = await captured(baseline);
    expect(await files.readFile(join(workspaceIn(second.content), 'a'), 'utf8')).toBe('good');
  });

  it('is complete when the previous one is deleted', async () => {
    await write('a', 'one');
    const first = await captured();
    const { place, baseline } = await started(first.checkpoint);
    home = place;
    const second = await captured(baseline);
    await files.rm(first.content, { recursive: true });
    const third = await captured(baseline);
    for (const { checkpoint } of [second, third]) {
      expect(await files.readFile(join((await started(checkpoint)).place, 'a'), 'utf8')).toBe('one');
    }
  });

  it('is readable for its owner, whatever its modes were', async () => {
    await files.mkdir(join(home, 'closed'));
    await write('closed/inside', 'hidden');
    await files.chmod(join(home, 'closed/inside'), 0o000);
    await files.chmod(join(home, 'closed'), 0o000);
    const { content } = await captured();
    expect((await files.lstat(join(workspaceIn(content), 'closed'))).mode & 0o7777).toBe(0o700);
    expect((await files.lstat(join(workspaceIn(content), 'closed/inside'))).mode & 0o7777).toBe(0o400);
  });
});

describe('a capture', () => {
  it('stops on abort, and writes nothing after the rejection', async () => {
    for (let count = 0; count < 200; count++) await write(`f${count}`, 'text');
    const stop = new AbortController();
    const path = join(top, 'staging');
    await files.mkdir(path);
    const baseline = undefined;
    const staging = { checkpointId: makeId('ckpt', randomBytes), path };
    const capturing = captureWorkspace(home, staging, baseline, stop.signal);
    stop.abort(new Error('too late'));
    await expect(capturing).rejects.toThrow('too late');
    await files.rm(path, { recursive: true });
  });

  it('by an ordinary user captures files whose modes exclude their owner, and keeps the modes', async ({
    skip,
  }) => {
    skip(process.getuid?.() !== 0, 'needs root to become an ordinary user');
    await files.mkdir(join(home, 'closed/within'), { recursive: true });
    await write('closed/inside', 'hidden');
    await write('closed/within/more', 'deeper');
    await run('chown', ['-R', '65534:65534', top]);
    await files.chmod(join(home, 'closed/inside'), 0o000);
    await files.chmod(join(home, 'closed/within'), 0o000);
    await ageAll();
    await files.chmod(join(home, 'closed'), 0o300);
    const before = await describeTree(home);
    await files.chmod(top, 0o777);
    process.seteuid?.(65534);
    try {
      const { place } = await started((await captured()).checkpoint);
      process.seteuid?.(0);
      expect(await describeTree(place)).toBe(before);
      expect(await describeTree(home)).toBe(before);
    } finally {
      process.seteuid?.(0);
    }
  });

  it('by an ordinary user names the file that another user owns', async ({ skip }) => {
    skip(process.getuid?.() !== 0, 'needs root to become an ordinary user');
    await write('theirs', 'secret');
    await files.chmod(join(home, 'theirs'), 0o600);
    await files.chmod(top, 0o777);
    process.seteuid?.(65534);
    try {
      await expect(captured()).rejects.toMatchObject({ code: 'conflict' });
    } finally {
      process.seteuid?.(0);
    }
  });
});
