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
import { type TarEntry, tar } from '@torpor/host/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeRoot } from './rootfs-template.ts';

const run = promisify(execFile);

/** Only root can set the owners of files. */
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

  /** Expects that the archive is refused and that nothing outside has changed. Returns the message. */
  async function refused(...entries: TarEntry[]): Promise<string> {
    const failure = await failureOf(unpack(tar(...entries)));
    expect(failure.code).toBe('invalid_request');
    expect(await readdir(outside)).toEqual(['victim']);
    expect(await readFile(join(outside, 'victim'), 'utf8')).toBe('untouched');
    expect((await lstat(join(outside, 'victim'))).mode & 0o7777).toBe(0o644);
    return failure.message;
  }

  describe('that is valid', () => {
    it('has the files, directories and links of the archive, with owners, modes and times', async () => {
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

    it('may be compressed with gzip or zstd', async () => {
      const bytes = tar({ name: 'a', content: 'b' });
      for (const packed of [gzipSync(bytes), zstdCompressSync(bytes)]) {
        await rm(into, { recursive: true });
        await mkdir(into);
        await unpack(packed);
        expect(await readFile(join(into, 'a'), 'utf8')).toBe('b');
      }
    });

    it('may have long names, names that are not UTF-8, and times with fractions of a second', async () => {
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

    it('has the last of several entries with one name, and does not write through a link', async () => {
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

    it('gets the user, the mount points and the PATH that every guest needs', async () => {
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

  describe('that would write outside', () => {
    it('by a path with ".." is refused', async () => {
      expect(await refused({ name: '../outside/new', content: 'x' })).toMatch(/path with "\.\."/);
      expect(await refused({ name: 'a/../../outside/new', content: 'x' })).toMatch(/path with "\.\."/);
      expect(await refused({ name: 'x', content: 'x', records: { path: '../outside/new' } })).toMatch(
        /path with "\.\."/,
      );
    });

    it('by an absolute path is refused', async () => {
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

    it('by a directory entry that is a link already is refused', async () => {
      await refused({ name: 'a', type: '2', target: outside }, { name: 'a/', type: '5', mode: 0o777 });
    });

    it('by a hard link to a file outside is refused', async () => {
      const away = { name: 'a', type: '1' };
      await refused({ ...away, target: '../outside/victim' });
      await refused({ ...away, target: `${outside}/victim` });
      await refused({ name: 'l', type: '2', target: outside }, { ...away, target: 'l/victim' });
      await refused({ name: 'm', type: '2', target: `${outside}/victim` }, { ...away, target: 'm' });
    });

    it('by links where Torpor adds its files is refused', async () => {
      await refused(
        { name: 'etc', type: '2', target: '/proc/self/nothing' },
        { name: 'proc', content: 'a file' },
      );
    });
  });

  describe('whose links point at the host', () => {
    it('gets its accounts inside, wherever the links lead', async () => {
      await unpack(
        tar(
          { name: 'etc', type: '2', target: `${outside}` },
          { name: 'home', type: '2', target: '/../../../..' },
          { name: 'tmp', type: '2', target: `../../../../../../..${outside}` },
        ),
      );
      expect(await readdir(outside)).toEqual(['victim']);
      // For a guest an absolute link starts at the top of its own root.
      expect(await readFile(join(into, outside, 'passwd'), 'utf8')).toContain('user:x:1000');
      expect((await stat(join(into, 'user'))).uid).toBe(1000);
    });
  });

  describe('whose links are dangling', () => {
    it.each([
      ['etc/passwd', '/run/accounts/passwd'],
      ['etc/group', '../not/there/group'],
      ['etc/passwd', 'passwd'],
      ['etc/profile.d/torpor.sh', '/gone/torpor.sh'],
    ])('is refused with the path when %s is a link to %s', async (name, target) => {
      expect(await refused({ name, type: '2', target })).toContain(`The root cannot be used: /${name} `);
    });

    it('is accepted when only the link to sudo cannot be added', async () => {
      await unpack(tar({ name: 'usr/bin', type: '2', target: '/gone/bin' }));
      expect(await readdir(join(into, 'usr'))).toEqual(['bin']);
    });
  });

  describe('with entries that have an effect on the host', () => {
    it('is refused for a device, but not for those in /dev, which a guest gets from its kernel', async () => {
      expect(await refused({ name: 'disk', type: '4' })).toMatch(/device/);
      expect(await refused({ name: 'whiteout', type: '3' })).toMatch(/device/);
      await unpack(tar({ name: 'dev/', type: '5' }, { name: 'dev/null', type: '3' }));
      expect(await readdir(join(into, 'dev'))).toEqual([]);
    });

    it('is refused for a named pipe', async () => {
      expect(await refused({ name: 'pipe', type: '6' })).toMatch(/pipe/);
    });

    it('loses setuid and setgid bits', async () => {
      await unpack(
        tar({ name: 'root-shell', mode: 0o6755, content: 'x' }, { name: 'shared/', type: '5', mode: 0o7777 }),
      );
      expect((await stat(join(into, 'root-shell'))).mode & 0o7777).toBe(0o755);
      expect((await stat(join(into, 'shared'))).mode & 0o7777).toBe(0o3777);
    });

    it('loses extended attributes, which overlayfs would interpret', async () => {
      const attribute = { 'SCHILY.xattr.trusted.overlay.redirect': '/etc', 'SCHILY.xattr.user.x': 'y' };
      await unpack(tar({ name: 'd/', type: '5', records: attribute }));
      const { stdout } = await run('getfattr', ['-d', '-m', '-', join(into, 'd')]).catch(() => ({
        stdout: '',
      }));
      expect(stdout).toBe('');
    });

    it('is refused for reserved names', async () => {
      expect(await refused({ name: '.torpor-credential', type: '2', target: `${outside}/victim` })).toMatch(
        /reserved/,
      );
      expect(await refused({ name: '.torpor/bin/sudo', content: 'x' })).toMatch(/reserved/);
    });
  });

  describe('that is too large', () => {
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

    it('is refused for invalid names', async () => {
      await refused({ name: 'x', records: { path: 'a'.repeat(256) } });
      await refused({ name: 'x', records: { path: 'a/'.repeat(300) } });
      await refused({ name: 'x', type: 'L', size: 2 ** 30 });
      await refused({ name: 'l', type: '2', target: '', content: '' });
    });
  });

  describe('that is invalid', () => {
    it.each([
      ['truncated', tar({ name: 'a', content: 'x'.repeat(2000) }).subarray(0, 1500)],
      ['without an end-of-archive block', tar({ name: 'a' }).subarray(0, 512)],
      ['empty', Buffer.alloc(0)],
      ['not an archive', Buffer.from('#!/bin/sh\n'.repeat(100))],
      ['damaged in its compression', gzipSync(tar({ name: 'a' })).subarray(0, 30)],
      ['compressed with xz', Buffer.from('fd377a585a000000', 'hex')],
      ['with an unknown entry', tar({ name: 'a', type: 'Z' })],
      ['with a sparse file', tar({ name: 'a', records: { 'GNU.sparse.major': '1' } })],
      ['with an invalid owner', tar({ name: 'a', records: { uid: '-5' } })],
      ['with an invalid size', tar({ name: 'a', records: { size: '-1' } })],
      [
        'with invalid extended headers',
        tar({ name: 'r', type: 'x', content: '99999 path=x\n' }, { name: 'a' }),
      ],
      ['with a file in place of a directory', tar({ name: 'd/x' }, { name: 'd', content: 'x' })],
    ])('is refused when it is %s', async (_, bytes) => {
      expect((await failureOf(unpack(bytes))).code).toBe('invalid_request');
    });

    it('is refused when it does not exist', async () => {
      const archive = join(directory, 'nothing');
      expect((await failureOf(makeRoot({ archive }, into, unhurried))).message).toMatch(/does not exist/);
    });
  });

  it('may be made from a directory, by the same rules', async () => {
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

  it('stops when the caller aborts', async () => {
    const archive = join(directory, 'archive');
    await writeFile(archive, tar({ name: 'a' }, { name: 'b' }));
    await expect(makeRoot({ archive }, into, AbortSignal.abort(new Error('enough')))).rejects.toThrow(
      'enough',
    );
  });
});
