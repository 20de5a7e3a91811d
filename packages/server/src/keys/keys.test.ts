import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { databaseKinds, type FreshDatabase, freshDatabase, ManualClock } from '@torpor/engine/testing';
import type { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOrg } from '../orgs/manage.ts';
import { ensureFirstKey, keyFileOf } from './first-key.ts';
import { type Identity, identify } from './identity.ts';
import { createKey, pageOfKeys, revokeKey } from './manage.ts';

async function codeOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'fine',
    (thrown: unknown) => (thrown as TorporError).code,
  );
}

describe.each(databaseKinds)('keys on %s', (kind) => {
  let fresh: FreshDatabase;
  const clock = new ManualClock();
  beforeAll(async () => {
    fresh = await freshDatabase(kind);
    for (const name of ['acme', 'mine', 'theirs', 'solo']) await createOrg(ctx(), { name });
  });
  afterAll(() => fresh.dispose());
  const ctx = () => ({ db: fresh.db, clock, randomBytes });
  const ask = (headers: Record<string, string>): Promise<Identity> => identify(fresh.db, clock, headers);

  it('are accepted in each form that clients send', async () => {
    const { key, id } = await createKey(ctx(), 'acme', { name: 'a' });
    const identity = {
      org: 'acme',
      subject: 'default',
      keyId: id,
      service: true,
      operator: false,
      readOnly: false,
    };
    expect(await ask({ authorization: `Bearer ${key}` })).toEqual(identity);
    expect(await ask({ authorization: `bearer e2b_${key}` })).toEqual(identity);
    expect(await ask({ 'x-api-key': key })).toEqual(identity);
    expect(await ask({ 'x-api-key': `e2b_${key.toUpperCase()}`, authorization: `Bearer ${key}` })).toEqual(
      identity,
    );
  });

  it('are stored as hashes only', async () => {
    const { key } = await createKey(ctx(), 'acme', { name: 'hashed' });
    const rows = await fresh.db.query('SELECT * FROM api_keys');
    expect(JSON.stringify(rows)).not.toContain(key);
  });

  it('get the same refusal when missing, malformed, unknown, ambiguous, revoked or expired', async () => {
    const good = await createKey(ctx(), 'acme', { name: 'good' });
    const revoked = await createKey(ctx(), 'acme', { name: 'revoked' });
    await revokeKey(ctx(), 'acme', revoked.id);
    const expired = await createKey(ctx(), 'acme', { name: 'expired', expiresInSeconds: 60 });
    expect((await ask({ 'x-api-key': expired.key })).org).toBe('acme');
    clock.advance(60_000);
    const refused = [
      {},
      { authorization: good.key },
      { authorization: `Basic ${good.key}` },
      { authorization: `Bearer ${good.key} ${good.key}` },
      { 'x-api-key': good.key.slice(1) },
      { 'x-api-key': `${good.key}, ${good.key}` },
      { 'x-api-key': 'f'.repeat(64) },
      { 'x-api-key': good.key, authorization: `Bearer ${'f'.repeat(64)}` },
      { 'x-api-key': revoked.key },
      { 'x-api-key': expired.key },
    ];
    const messages = new Set<string>();
    for (const headers of refused) {
      const thrown = await ask(headers).catch((error: TorporError) => error);
      expect(thrown).toMatchObject({ code: 'unauthenticated' });
      messages.add((thrown as TorporError).message);
    }
    expect(messages.size).toBe(1);
  });

  it('of a service act for any user, keys of a user only for that user', async () => {
    const service = await createKey(ctx(), 'acme', { name: 's' });
    const user = await createKey(ctx(), 'acme', { name: 'u', subject: 'ada' });
    expect(await ask({ 'x-api-key': service.key, 'torpor-user': 'grace' })).toMatchObject({
      subject: 'grace',
    });
    expect(await ask({ 'x-api-key': user.key })).toMatchObject({ subject: 'ada', service: false });
    expect(await ask({ 'x-api-key': user.key, 'torpor-user': 'ada' })).toMatchObject({ subject: 'ada' });
    expect(await codeOf(ask({ 'x-api-key': user.key, 'torpor-user': 'grace' }))).toBe('forbidden');
    for (const name of ['', ' ', 'a b', '../x', 'x'.repeat(129), 'é']) {
      expect(await codeOf(ask({ 'x-api-key': service.key, 'torpor-user': name }))).toBe('invalid_request');
    }
  });

  it('of another organisation are not found', async () => {
    const mine = await createKey(ctx(), 'mine', { name: 'mine' });
    const theirs = await createKey(ctx(), 'theirs', { name: 'theirs' });
    expect(await codeOf(revokeKey(ctx(), 'mine', theirs.id))).toBe('not_found');
    expect((await pageOfKeys(ctx(), 'mine', '', 10)).items).toMatchObject([{ id: mine.id, org: 'mine' }]);
  });

  it('that are read-only do not count as a key that can make others', async () => {
    const org = 'looker';
    await createOrg(ctx(), { name: org });
    const only = await createKey(ctx(), org, { name: 'only' });
    const reader = await createKey(ctx(), org, { name: 'reader', readOnly: true });
    expect(await ask({ 'x-api-key': reader.key })).toMatchObject({ service: true, readOnly: true });
    expect(await codeOf(revokeKey(ctx(), org, only.id))).toBe('conflict');
    expect(await codeOf(revokeKey(ctx(), org, reader.id))).toBe('fine');
  });

  it('cannot be revoked when they are the last service key', async () => {
    const only = await createKey(ctx(), 'solo', { name: 'only' });
    await createKey(ctx(), 'solo', { name: 'of a user', subject: 'ada' });
    expect(await codeOf(revokeKey(ctx(), 'solo', only.id))).toBe('conflict');
    const another = await createKey(ctx(), 'solo', { name: 'another' });
    const both = await Promise.all([only, another].map(({ id }) => codeOf(revokeKey(ctx(), 'solo', id))));
    expect(both.sort()).toEqual(['conflict', 'fine']);
  });
});

describe('the first key', () => {
  let fresh: FreshDatabase;
  let dataDir: string;
  beforeAll(async () => {
    fresh = await freshDatabase('sqlite');
    dataDir = await mkdtemp(join(tmpdir(), 'torpor-keys-'));
  });
  afterAll(async () => {
    await fresh.dispose();
    await rm(dataDir, { recursive: true });
  });
  const ctx = () => ({ db: fresh.db, clock: systemClock, randomBytes });
  const ensure = (onPurpose?: string) => ensureFirstKey(ctx(), dataDir, onPurpose);
  const opens = (key: string) => codeOf(identify(fresh.db, systemClock, { 'x-api-key': key }));

  it('is made once, stored readable only by its user, and shown once', async () => {
    const first = await ensure();
    expect(first.made).toMatch(/^[0-9a-f]{64}$/);
    expect(await readFile(keyFileOf(dataDir), 'utf8')).toBe(`${first.made}\n`);
    expect((await stat(keyFileOf(dataDir))).mode & 0o777).toBe(0o600);
    expect(await ensure()).toEqual({ file: keyFileOf(dataDir), made: null });
    expect(await opens(first.made ?? '')).toBe('fine');
  });

  it('stays revoked although its file still holds it', async () => {
    const { items } = await pageOfKeys(ctx(), 'default', '', 10);
    const spare = await createKey(ctx(), 'default', { name: 'spare', operator: true });
    await revokeKey(ctx(), 'default', items[0]?.id ?? '', true);
    await ensure();
    expect(await opens((await readFile(keyFileOf(dataDir), 'utf8')).trim())).toBe('unauthenticated');
    expect(await opens(spare.key)).toBe('fine');
  });

  it('can be configured, and a new value replaces it', async () => {
    const [one, two] = ['1'.repeat(64), '2'.repeat(64)];
    await ensure(one);
    expect(await opens(one)).toBe('fine');
    await ensure(`e2b_${two}`);
    expect([await opens(one), await opens(two)]).toEqual(['unauthenticated', 'fine']);
    await ensure(one);
    expect([await opens(one), await opens(two)]).toEqual(['fine', 'unauthenticated']);
    expect(await codeOf(ensure('secret'))).toBe('invalid_request');
  });

  it('is refused when its file holds no key', async () => {
    await writeFile(keyFileOf(dataDir), 'not a key');
    expect(await codeOf(ensure())).toBe('invalid_request');
  });
});
