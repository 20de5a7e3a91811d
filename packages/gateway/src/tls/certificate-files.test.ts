import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CertificateWithKey, createAuthority } from '@torpor/certificates';
import { ManualClock } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readCertificateFiles, watchCertificateFiles } from './certificate-files.ts';

let directory: string;
const clock = new ManualClock(Date.now());
const make = (days = 30): CertificateWithKey =>
  createAuthority({ called: 'Test', names: ['sbx.example.com'] }, { now: clock.now(), days, randomBytes });
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-certificate-'));
});
afterAll(() => rm(directory, { recursive: true }));

async function filesWith({ cert, key }: CertificateWithKey) {
  const files = { cert: join(directory, 'fullchain.pem'), key: join(directory, 'key.pem') };
  await writeFile(files.cert, cert);
  await writeFile(files.key, key);
  return files;
}

describe('the certificate in files', () => {
  it('is read with its key', async () => {
    const made = make();
    expect(await readCertificateFiles(await filesWith(made), clock.now())).toEqual(made);
  });

  it('is refused with the key of another, when it has expired, and when it is missing', async () => {
    const refusal = (files: { cert: string; key: string }, now = clock.now()) =>
      readCertificateFiles(files, now).catch((error: unknown) => error);
    expect(await refusal(await filesWith({ ...make(), key: make().key }))).toMatchObject({
      message: expect.stringContaining('do not belong together'),
    });
    expect(await refusal(await filesWith(make(1)), clock.now() + 2 * 24 * 3_600_000)).toMatchObject({
      message: expect.stringContaining('expired'),
    });
    expect(await refusal({ cert: '/nonexistent', key: '/nonexistent' })).toMatchObject({
      code: 'invalid_request',
    });
  });

  it('is used again when its files change, and only as a pair', async () => {
    const [first, second] = [make(), make()];
    const files = await filesWith(first);
    const renewed: CertificateWithKey[] = [];
    const reported: string[] = [];
    const stop = new AbortController();
    const watching = watchCertificateFiles({
      files,
      current: first,
      clock,
      everyMs: 1_000,
      onChange: (pair) => renewed.push(pair),
      report: (what) => reported.push(what),
      signal: stop.signal,
    });
    const next = async () => {
      await clock.untilAsleepFor(1_000);
      clock.advance(1_000);
      await clock.untilAsleepFor(1_000);
    };
    await next();
    await writeFile(files.cert, second.cert);
    await next();
    expect([renewed, reported]).toEqual([[], ['the certificate could not be read again']]);
    await writeFile(files.key, second.key);
    await next();
    expect(renewed).toEqual([second]);
    stop.abort();
    await watching;
  });
});
