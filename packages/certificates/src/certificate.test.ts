import { execFile } from 'node:child_process';
import { randomBytes, X509Certificate } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commonName, createAuthority, issueCertificate, subjectHash } from './certificate.ts';

const run = promisify(execFile);
const parts = { now: Date.now(), days: 30, randomBytes };
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-certificates-'));
});
afterAll(() => rm(directory, { recursive: true }));

/** Whether OpenSSL accepts a certificate for this name, signed by the authority. */
async function isAccepted(authority: { cert: string; key: string }, name: string): Promise<boolean> {
  const signed = { ...authority, subject: commonName(authority.cert) };
  const { cert } = issueCertificate(signed, [name], parts);
  const [ca, leaf] = [join(directory, 'ca.pem'), join(directory, 'leaf.pem')];
  await writeFile(ca, authority.cert);
  await writeFile(leaf, cert);
  return run('openssl', ['verify', '-CAfile', ca, '-verify_hostname', name, leaf]).then(
    () => true,
    () => false,
  );
}

describe('an authority', () => {
  it('with names signs for these names and their subdomains only', async () => {
    const authority = createAuthority({ called: 'Test', names: ['example.com'] }, parts);
    expect(await isAccepted(authority, 'example.com')).toBe(true);
    expect(await isAccepted(authority, 'a.example.com')).toBe(true);
    expect(await isAccepted(authority, 'example.org')).toBe(false);
  });

  it('without names signs for any name, but for no further authority', async () => {
    const authority = createAuthority({ called: 'Test', names: null }, parts);
    expect(await isAccepted(authority, 'api.example.org')).toBe(true);
    const { stdout } = await run('openssl', ['x509', '-in', join(directory, 'ca.pem'), '-noout', '-text']);
    expect(stdout).toContain('CA:TRUE, pathlen:0');
    expect(stdout).not.toContain('Name Constraints');
  });

  it('has the hash under which OpenSSL looks for it in a directory', async () => {
    const { cert } = createAuthority({ called: 'Test of Hashes', names: null }, parts);
    await writeFile(join(directory, 'hashed.pem'), cert);
    const args = ['x509', '-in', join(directory, 'hashed.pem'), '-noout', '-hash'];
    expect(subjectHash(cert)).toBe((await run('openssl', args)).stdout.trim());
    expect(new X509Certificate(cert).ca).toBe(true);
  });
});
