import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Queryable } from '@torpor/engine';
import { type FreshDatabase, freshDatabase, ManualClock } from '@torpor/engine/testing';
import type { CreatedKey } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createKey, revokeKey } from '../keys/manage.ts';
import { createOrg } from '../orgs/manage.ts';
import { KeyWatch } from './key-watch.ts';

const EVERY_MS = 15_000;

let fresh: FreshDatabase;
let clock: ManualClock;
let asked: number;
let isDown: boolean;
let watch: KeyWatch;
let key: CreatedKey;

beforeAll(async () => {
  fresh = await freshDatabase('sqlite');
  const keyParts = { db: fresh.db, clock: new ManualClock(), randomBytes };
  await createOrg(keyParts, { name: 'acme' });
  await createKey(keyParts, 'acme', { name: 'the last' });
});
afterAll(() => fresh.dispose());

beforeEach(async () => {
  clock = new ManualClock();
  asked = 0;
  isDown = false;
  const db: Queryable = {
    query: (text, params) => {
      asked += 1;
      return isDown ? Promise.reject(new Error('the database is away')) : fresh.db.query(text, params);
    },
  };
  watch = new KeyWatch({ db, clock, everyMs: EVERY_MS });
  key = await create();
});

const ctx = () => ({ db: fresh.db, clock, randomBytes });
const create = (more: object = {}) => createKey(ctx(), 'acme', { name: 'watched', ...more });
const open = ({ id }: CreatedKey) => watch.watch({ org: 'acme', keyId: id });

/** Waits for one check of the database and the beginning of the next interval. */
async function look(): Promise<void> {
  await clock.untilAsleepFor(EVERY_MS);
  const before = asked;
  clock.advance(EVERY_MS);
  while (asked === before) await new Promise(setImmediate);
}

describe('the watch of a key', () => {
  it('does nothing while the key is valid', async () => {
    const { revoked, release } = open(key);
    for (let looks = 0; looks < 3; looks++) await look();
    await clock.untilAsleepFor(EVERY_MS);
    expect(revoked.aborted).toBe(false);
    release();
  });

  it('ends all connections of a revoked key with one query', async () => {
    const connections = [open(key), open(key), open(key)];
    const ended = Promise.all(connections.map(({ revoked }) => once(revoked, 'abort')));
    await revokeKey(ctx(), 'acme', key.id);
    await look();
    await ended;
    expect(asked).toBe(1);
    for (const { revoked } of connections) expect(revoked.reason).toMatchObject({ code: 'unauthenticated' });
  });

  it('ends the connections of an expired key', async () => {
    const { revoked } = open(await create({ expiresInSeconds: 20 }));
    await look();
    await clock.untilAsleepFor(EVERY_MS);
    expect(revoked.aborted).toBe(false);
    const ended = once(revoked, 'abort');
    await look();
    await ended;
  });

  it('does nothing when the database does not answer', async () => {
    const { revoked } = open(key);
    await revokeKey(ctx(), 'acme', key.id);
    isDown = true;
    await look();
    await clock.untilAsleepFor(EVERY_MS);
    expect(revoked.aborted).toBe(false);
    isDown = false;
    const ended = once(revoked, 'abort');
    await look();
    await ended;
  });

  it('stops with the last connection and starts again with the next', async () => {
    const [first, second] = [open(key), open(key)];
    first.release();
    first.release();
    await look();
    await clock.untilAsleepFor(EVERY_MS);
    second.release();
    clock.advance(EVERY_MS);
    expect(clock.advanceToNext()).toBe(false);
    expect(asked).toBe(1);
    const third = open(key);
    await look();
    expect([asked, third.revoked.aborted]).toEqual([2, false]);
    third.release();
  });

  it('keeps keys apart', async () => {
    const other = await create();
    const [mine, theirs] = [open(key), open(other)];
    const ended = once(mine.revoked, 'abort');
    await revokeKey(ctx(), 'acme', key.id);
    await look();
    await ended;
    await clock.untilAsleepFor(EVERY_MS);
    expect(theirs.revoked.aborted).toBe(false);
    theirs.release();
  });
});
