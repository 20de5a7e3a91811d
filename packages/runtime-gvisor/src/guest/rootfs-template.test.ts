import { execFile } from 'node:child_process';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { failureOf, unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeRoot } from './rootfs-template.ts';
import { type TarEntry, tar } from './testing/tar.ts';

const run = promisify(execFile);

/** Owners of files can be set by root only. */
describe.skipIf(process.getuid?.() !== 0)('a root from an archive', () => {
  let directory = '';
  let outside = '';
  let into = '';

  beforeEach(async () => {
    directory = await mkdtemp('/var/tmp/torpor-root-');
    outside = join(directory, 'outside');
    into = join(directory, 'into');
    await mkdir(outside);
    await mkdir(into);
    await writeFile(join(outside, 'victim'), 'untouched');
  });

  afterEach(() => rm(directory, { recursive: true }));

  async function unpack(bytes: Buffer, limits = { bytes: 1_000_000, entries: 100 }): Promise<void> {
    const archive = join(directory, 'archive');
    await writeFile(archive, bytes);
    await makeRoot({ archive }, into, unhurried, limits);
  }

  /** Refused, and nothing outside is different. */
  async function refused(...entries: TarEntry[]): Promise<string> {
    const failure = await failureOf(unpack(tar(...entries)));
    expect(failure.code).toBe('invalid_request');
    expect(await readdir(outside)).toEqual(['victim']);
    expect(await readFile(join(outside, 'victim'), 'utf8')).toBe('untouched');
    expect((await lstat(join(outside, 'victim'))).mode & 0o7777).toBe(0o644);
    return failure.message;
  }

  describe('that is in order', () => {
    it('has files, directories and links as they were, owners, modes and times included', async () => {
      await unpack(
        tar(
          { name: './', type: '5', mode: 0o755 },
          { name: 'etc/', type: '5', mode: 0o750, uid: 3, gid: 4, mtime: 1_111_111_111 },
          { name: 'etc/file', mode: 0o640, uid: 1234, gid: 5678, content: 'hello', mtime: 1_222_222_222 },
          { name: 'deep/er/file', content: 'made on the way' },
          { name: 'absolute', type: '2', target: '/etc/file', uid: 7 },
          { name: 'second', type: '1', target: './etc/file' },
        ),
      );
      const file = await stat(join(into, 'etc/file'));
      expect([file.mode & 0o7777, file.uid, file.gid, file.mtimeMs, file.nlink]).toEqual([
        0o640, 1234, 5678, 1_222_222_222_000, 2,
      ]);
      expect(await readFile(join(into, 'second'), 'utf8')).toBe('hello');
      expect(await readlink(join(into, 'absolute'))).toBe('/etc/file');
      expect((await lstat(join(into, 'absolute'))).uid).toBe(7);
      expect(await readFile(join(into, 'deep/er/file'), 'utf8')).toBe('made on the way');
      const { uid, mode } = await stat(join(into, 'etc'));
      expect([uid, mode & 0o7777]).toEqual([3, 0o750]);
    });

    it('may be packed with gzip or zstd', async () => {
      const bytes = tar({ name: 'a', content: 'b' });
      for (const packed of [gzipSync(bytes), zstdCompressSync(bytes)]) {
        await rm(into, { recursive: true });
        await mkdir(into);
        await unpack(packed);
        expect(await readFile(join(into, 'a'), 'utf8')).toBe('b');
      }
    });

    it('may have long names, names that are no text, and times below the second', async () => {
      const long = `${'d'.repeat(200)}/${'f'.repeat(200)}`;
      await unpack(
        tar(
          { name: 'short', content: 'x', records: { path: long, mtime: '1234567890.5' } },
          { name: '././@LongLink', type: 'L', content: `${'g'.repeat(150)}\0` },
          { name: 'cut', content: 'y' },
          { name: 'caf\xe9', content: 'z' },
        ),
      );
      expect((await stat(join(into, long))).mtimeMs).toBe(1_234_567_890_500);
      expect(await readFile(join(into, 'g'.repeat(150)), 'utf8')).toBe('y');
      const names = await readdir(into, { encoding: 'buffer' });
      expect(names.map((name) => name.toString('latin1'))).toContain('caf\xe9');
    });

    it('counts what comes later, without touching what a link led to', async () => {
      await unpack(
        tar(
          { name: 'a', type: '2', target: join(outside, 'victim') },
          { name: 'a', content: 'a file now' },
          { name: 'b', content: 'first' },
          { name: 'b', content: 'second' },
        ),
      );
      expect(await readFile(join(into, 'a'), 'utf8')).toBe('a file now');
      expect(await readFile(join(into, 'b'), 'utf8')).toBe('second');
      expect(await readFile(join(outside, 'victim'), 'utf8')).toBe('untouched');
    });

    it('gets the user, the places and the PATH that every guest needs', async () => {
      await unpack(tar({ name: 'bin/', type: '5' }, { name: 'bin/bash', mode: 0o755 }));
      expect(await readFile(join(into, 'etc/passwd'), 'utf8')).toBe(
        'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n',
      );
      expect((await stat(join(into, 'home/user'))).uid).toBe(1000);
      for (const place of ['.torpor', 'proc', 'sys', 'dev', 'tmp']) {
        expect((await stat(join(into, place))).isDirectory(), place).toBe(true);
      }
    });
  });

  describe('that would get out', () => {
    it('by a name that leads upwards is refused', async () => {
      expect(await refused({ name: '../outside/new', content: 'x' })).toMatch(/leads upwards/);
      expect(await refused({ name: 'a/../../outside/new', content: 'x' })).toMatch(/leads upwards/);
      expect(await refused({ name: 'x', content: 'x', records: { path: '../outside/new' } })).toMatch(
        /upwards/,
      );
    });

    it('by an absolute name is refused', async () => {
      expect(await refused({ name: `${outside}/new`, content: 'x' })).toMatch(/absolute/);
    });

    it('through a link to a directory outside is refused', async () => {
      const message = await refused(
        { name: 'a', type: '2', target: outside },
        { name: 'a/new', content: 'x' },
      );
      expect(message).toMatch(/leads through/);
      await rm(join(into, 'a'));
      await refused({ name: 'a', type: '2', target: '../outside' }, { name: 'a/victim', content: 'x' });
    });

    it('through a chain of links inside is refused', async () => {
      await refused(
        { name: 'a', type: '2', target: '..' },
        { name: 'b', type: '2', target: 'a/outside' },
        { name: 'b/new', content: 'x' },
      );
    });

    it('by a directory that is a link already is refused', async () => {
      await refused({ name: 'a', type: '2', target: outside }, { name: 'a/', type: '5', mode: 0o777 });
    });

    it('by a second name for a file outside is refused', async () => {
      const away = { name: 'a', type: '1' };
      await refused({ ...away, target: '../outside/victim' });
      await refused({ ...away, target: `${outside}/victim` });
      await refused({ name: 'l', type: '2', target: outside }, { ...away, target: 'l/victim' });
      await refused({ name: 'm', type: '2', target: `${outside}/victim` }, { ...away, target: 'm' });
    });

    it('by what is added to every root is refused', async () => {
      await refused(
        { name: 'etc', type: '2', target: '/proc/self/nothing' },
        { name: 'proc', content: 'a file' },
      );
    });
  });

  describe('whose links point at this machine', () => {
    it('has accounts written inside it, wherever they lead', async () => {
      await unpack(
        tar(
          { name: 'etc', type: '2', target: `${outside}` },
          { name: 'home', type: '2', target: '/../../../..' },
          { name: 'tmp', type: '2', target: `../../../../../../..${outside}` },
        ),
      );
      expect(await readdir(outside)).toEqual(['victim']);
      // To a guest an absolute link starts at its own top.
      expect(await readFile(join(into, outside, 'passwd'), 'utf8')).toContain('user:x:1000');
      expect((await stat(join(into, 'user'))).uid).toBe(1000);
    });
  });

  describe('whose links lead nowhere', () => {
    it.each([
      ['etc/passwd', '/run/accounts/passwd'],
      ['etc/group', '../not/there/group'],
      ['etc/passwd', 'passwd'],
      ['etc/profile.d/torpor.sh', '/gone/torpor.sh'],
    ])('is refused with the path when %s is a link to %s', async (name, target) => {
      expect(await refused({ name, type: '2', target })).toContain(`The root is no good: /${name} `);
    });

    it('is good when only a program of ours has no place in it', async () => {
      await unpack(tar({ name: 'usr/bin', type: '2', target: '/gone/bin' }));
      expect(await readdir(join(into, 'usr'))).toEqual(['bin']);
    });
  });

  describe('with something that has rights or meaning on this machine', () => {
    it('is refused for a device, but not for those in /dev, which a guest has from its kernel', async () => {
      expect(await refused({ name: 'disk', type: '4' })).toMatch(/device/);
      expect(await refused({ name: 'whiteout', type: '3' })).toMatch(/device/);
      await unpack(tar({ name: 'dev/', type: '5' }, { name: 'dev/null', type: '3' }));
      expect(await readdir(join(into, 'dev'))).toEqual([]);
    });

    it('is refused for a named pipe', async () => {
      expect(await refused({ name: 'pipe', type: '6' })).toMatch(/pipe/);
    });

    it('loses the bits that change the user', async () => {
      await unpack(
        tar({ name: 'root-shell', mode: 0o6755, content: 'x' }, { name: 'shared/', type: '5', mode: 0o7777 }),
      );
      expect((await stat(join(into, 'root-shell'))).mode & 0o7777).toBe(0o755);
      expect((await stat(join(into, 'shared'))).mode & 0o7777).toBe(0o3777);
    });

    it('loses attributes that would speak to the file system of the layers', async () => {
      const attribute = { 'SCHILY.xattr.trusted.overlay.redirect': '/etc', 'SCHILY.xattr.user.x': 'y' };
      await unpack(tar({ name: 'd/', type: '5', records: attribute }));
      const { stdout } = await run('getfattr', ['-d', '-m', '-', join(into, 'd')]).catch(() => ({
        stdout: '',
      }));
      expect(stdout).toBe('');
    });

    it('is refused for names that are ours', async () => {
      expect(await refused({ name: '.torpor-credential', type: '2', target: `${outside}/victim` })).toMatch(
        /ours/,
      );
      expect(await refused({ name: '.torpor/bin/sudo', content: 'x' })).toMatch(/ours/);
    });
  });

  describe('that is too much', () => {
    it('is refused for more bytes than allowed, before they are written', async () => {
      const limits = { bytes: 1000, entries: 100 };
      const bomb = tar({ name: 'a', content: Buffer.alloc(600) }, { name: 'b', content: Buffer.alloc(600) });
      expect((await failureOf(unpack(bomb, limits))).message).toMatch(/more than 1000 bytes/);
      const claim = tar({ name: 'big', size: 2 ** 32, content: 'x' });
      expect((await failureOf(unpack(claim, limits))).message).toMatch(/more than 1000 bytes/);
      const packed = gzipSync(tar({ name: 'zeros', content: Buffer.alloc(10_000_000) }));
      expect((await failureOf(unpack(packed, limits))).message).toMatch(/more than 1000 bytes/);
      expect(await readdir(into)).toEqual(['a']);
    });

    it('is refused for more entries than allowed', async () => {
      const many = Array.from({ length: 101 }, (_, index) => ({ name: `f${index}` }));
      expect((await failureOf(unpack(tar(...many)))).message).toMatch(/more than 100 entries/);
    });

    it('is refused for names that no file can have', async () => {
      await refused({ name: 'x', records: { path: 'a'.repeat(256) } });
      await refused({ name: 'x', records: { path: 'a/'.repeat(300) } });
      await refused({ name: 'x', type: 'L', size: 2 ** 30 });
      await refused({ name: 'l', type: '2', target: '', content: '' });
    });
  });

  describe('that is no good', () => {
    it.each([
      ['cut off', tar({ name: 'a', content: 'x'.repeat(2000) }).subarray(0, 1500)],
      ['without an end', tar({ name: 'a' }).subarray(0, 512)],
      ['empty', Buffer.alloc(0)],
      ['something else', Buffer.from('#!/bin/sh\n'.repeat(100))],
      ['damaged in its packing', gzipSync(tar({ name: 'a' })).subarray(0, 30)],
      ['of xz', Buffer.from('fd377a585a000000', 'hex')],
      ['with an unknown entry', tar({ name: 'a', type: 'Z' })],
      ['with a sparse file', tar({ name: 'a', records: { 'GNU.sparse.major': '1' } })],
      ['with an owner that cannot be', tar({ name: 'a', records: { uid: '-5' } })],
      ['with a size that cannot be', tar({ name: 'a', records: { size: '-1' } })],
      [
        'with records that cannot be',
        tar({ name: 'r', type: 'x', content: '99999 path=x\n' }, { name: 'a' }),
      ],
      ['with a file where a directory is', tar({ name: 'd/x' }, { name: 'd', content: 'x' })],
    ])('is refused when it is %s', async (_, bytes) => {
      expect((await failureOf(unpack(bytes))).code).toBe('invalid_request');
    });

    it('is refused when it is not there', async () => {
      const archive = join(directory, 'nothing');
      expect((await failureOf(makeRoot({ archive }, into, unhurried))).message).toMatch(/not there/);
    });
  });

  it('may be a directory, from which the same comes through and the same does not', async () => {
    const from = join(directory, 'from');
    await mkdir(join(from, 'sub'), { recursive: true });
    await writeFile(join(from, 'sub/tool'), 'x');
    await run('chmod', ['4755', join(from, 'sub/tool')]);
    await run('chown', ['123:456', join(from, 'sub/tool')]);
    await symlink('/etc/shadow', join(from, 'link'));
    await makeRoot({ directory: from }, into, unhurried);
    const tool = await stat(join(into, 'sub/tool'));
    expect([tool.mode & 0o7777, tool.uid, tool.gid]).toEqual([0o755, 123, 456]);
    expect(await readlink(join(into, 'link'))).toBe('/etc/shadow');
    await run('mknod', [join(from, 'device'), 'c', '1', '3']);
    await rm(into, { recursive: true });
    await mkdir(into);
    expect((await failureOf(makeRoot({ directory: from }, into, unhurried))).message).toMatch(/device/);
  });

  it('stops when it is told to', async () => {
    const archive = join(directory, 'archive');
    await writeFile(archive, tar({ name: 'a' }, { name: 'b' }));
    await expect(makeRoot({ archive }, into, AbortSignal.abort(new Error('enough')))).rejects.toThrow(
      'enough',
    );
  });
});
