import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { trustAuthority } from './trusted-authority.ts';

const pem = (text: string) => `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`;
const BUNDLE = 'etc/ssl/certs/ca-certificates.crt';
let root = '';
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'torpor-trust-'));
  await mkdir(join(root, 'etc/ssl/certs'), { recursive: true });
});
afterEach(() => rm(root, { recursive: true }));
const read = (path: string) => readFile(join(root, path), 'utf8');

describe('a trusted authority', () => {
  it('is added to the bundle once, and replaced by the next one', async () => {
    await writeFile(join(root, BUNDLE), pem('theirs').trimEnd());
    expect(trustAuthority({ certificate: pem('old'), hash: '0000000a' }, root)).toBe(true);
    const { ino } = await stat(join(root, BUNDLE));
    expect(trustAuthority({ certificate: pem('old'), hash: '0000000a' }, root)).toBe(true);
    expect((await stat(join(root, BUNDLE))).ino).toBe(ino);
    await writeFile(join(root, BUNDLE), (await read(BUNDLE)) + pem('added later'));
    trustAuthority({ certificate: pem('new'), hash: '0000000b' }, root);
    const certificates = (await read(BUNDLE)).match(/(?<=-----\n)[a-z ]+(?=\n-----END)/g);
    expect(certificates).toEqual(['theirs', 'added later', 'new']);
    expect(await read('etc/ssl/certs/0000000b.0')).toBe(pem('new'));
    expect(await read('etc/ssl/certs/torpor-egress.pem')).toBe(pem('new'));
  });

  it('has a bundle also where the system has none, or elsewhere, or behind a link', async () => {
    expect(trustAuthority({ certificate: pem('ours'), hash: '0000000a' }, root)).toBe(true);
    expect(await read(BUNDLE)).toContain('ours');
    await rm(join(root, 'etc/ssl'), { recursive: true });
    await mkdir(join(root, 'etc/pki/tls/certs'), { recursive: true });
    await writeFile(join(root, 'etc/pki/tls/certs/real'), pem('theirs'));
    await symlink('real', join(root, 'etc/pki/tls/certs/ca-bundle.crt'));
    expect(trustAuthority({ certificate: pem('ours'), hash: '0000000a' }, root)).toBe(true);
    for (const path of [BUNDLE, 'etc/pki/tls/certs/real'])
      expect(await read(path), path).toMatch(/theirs[\s\S]*ours/);
  });

  it('must look like one', async () => {
    expect(trustAuthority({ certificate: 'x', hash: '0000000a' }, root)).toBe(false);
    expect(trustAuthority({ certificate: pem('x'), hash: '../../etc/x' }, root)).toBe(false);
    await expect(read(BUNDLE)).rejects.toThrow(/ENOENT/);
  });
});
