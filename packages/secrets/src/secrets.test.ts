import { randomBytes } from 'node:crypto';
import { databaseKinds, makeWorld, type World } from '@torpor/engine/testing';
import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encryptionKey } from './encrypted-value.ts';
import { Secrets } from './secrets.ts';

const ORG = 'default';
const REQUEST = {
  host: 'API.example.com',
  header: 'Authorization',
  prefix: 'Bearer ',
  value: 'sk-very-secret',
};
const key = encryptionKey(randomBytes(32));

describe.each(databaseKinds)('secrets on %s', (kind) => {
  let world: World;
  let secrets: Secrets;
  beforeEach(async () => {
    world = await makeWorld(kind, {
      parts: ({ db, clock }) => ({ secrets: new Secrets({ db, clock, key, randomBytes }) }),
    });
    secrets = new Secrets({ db: world.db, clock: world.clock, key, randomBytes });
  });
  afterEach(() => world.dispose());

  const sandboxOf = async (org: string): Promise<SandboxId> =>
    (await world.engine.create({ org }, {})).sandbox.id;

  it('are found with their values by the sandboxes of their organisation only', async () => {
    await secrets.set(ORG, 'KEY', { ...REQUEST, methods: ['GET'], path: '/v1' });
    const [own, foreign] = [await sandboxOf(ORG), await sandboxOf('other')];
    expect(await secrets.find(own, ['KEY', 'NONE'])).toEqual([
      {
        name: 'KEY',
        host: 'api.example.com',
        header: 'Authorization',
        methods: ['GET'],
        path: '/v1',
        content: 'Bearer sk-very-secret',
      },
    ]);
    expect(await secrets.find(foreign, ['KEY'])).toEqual([]);
    expect(await secrets.find(own, [])).toEqual([]);
    expect(await secrets.missing(ORG, ['KEY', 'NONE'])).toEqual(['NONE']);
    expect(await secrets.missing('other', ['KEY'])).toEqual(['KEY']);
  });

  it('show neither their values nor their encrypted form', async () => {
    const views = [
      await secrets.set(ORG, 'KEY', REQUEST),
      await secrets.get(ORG, 'KEY'),
      await secrets.delete(ORG, 'KEY'),
    ];
    for (const view of views)
      expect(view).toEqual({
        name: 'KEY',
        host: 'api.example.com',
        header: 'Authorization',
        prefix: 'Bearer ',
        methods: null,
        path: null,
        createdAt: expect.any(Number),
        updatedAt: expect.any(Number),
      });
  });

  it('are replaced as a whole, listed by name in pages, and gone after their deletion', async () => {
    for (const name of ['C', 'A', 'B']) await secrets.set(ORG, name, { ...REQUEST, path: '/v1' });
    await secrets.set('other', 'D', REQUEST).catch(() => {});
    await secrets.set(ORG, 'B', { host: 'b.example.com', header: 'X-Key', value: 'new' });
    const first = await secrets.list(ORG, '', 2);
    expect(first.items.map(({ name, path }) => [name, path])).toEqual([
      ['A', '/v1'],
      ['B', null],
    ]);
    expect((await secrets.list(ORG, first.nextCursor ?? '', 2)).items.map(({ name }) => name)).toEqual(['C']);
    const id = await sandboxOf(ORG);
    expect(await secrets.find(id, ['B'])).toMatchObject([{ host: 'b.example.com', content: 'new' }]);
    await secrets.delete(ORG, 'B');
    expect(await secrets.find(id, ['B'])).toEqual([]);
    await expect(secrets.delete(ORG, 'B')).rejects.toMatchObject({ code: 'not_found' });
    await expect(secrets.set('no-such-org', 'A', REQUEST)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('cannot be read with another key, nor after their row was given another host or header', async () => {
    await secrets.set(ORG, 'KEY', REQUEST);
    const id = await sandboxOf(ORG);
    const rows = JSON.stringify(await world.db.query('SELECT * FROM secrets'));
    expect(rows).not.toContain('sk-very-secret');
    const other = new Secrets({
      db: world.db,
      clock: world.clock,
      key: encryptionKey(randomBytes(32)),
      randomBytes,
    });
    await expect(other.find(id, ['KEY'])).rejects.toMatchObject({ code: 'internal' });
    for (const [column, value] of [
      ['host', 'evil.example.com'],
      ['header', 'X-Echo'],
      ['org', 'other'],
    ] as const) {
      await world.db.transaction((tx) => tx.query(`UPDATE secrets SET ${column} = $1`, [value]));
      const reader = column === 'org' ? await sandboxOf('other') : id;
      await expect(secrets.find(reader, ['KEY'])).rejects.toThrow(/cannot be decrypted/);
      await secrets.set(ORG, 'KEY', REQUEST);
    }
  });

  it('of rules are not listed, are stored once, and go when no sandbox uses them', async () => {
    const rules = [{ host: 'api.example.com', header: 'Authorization', value: 'Bearer x' }];
    const [name = ''] = await secrets.putRules(ORG, rules);
    expect(await secrets.putRules(ORG, rules)).toEqual([name]);
    expect(name).toMatch(/^rule_[0-9a-f]{40}$/);
    expect((await secrets.list(ORG, '', 10)).items).toEqual([]);
    await expect(secrets.get(ORG, name)).rejects.toMatchObject({ code: 'not_found' });
    await expect(secrets.set(ORG, name, REQUEST)).rejects.toMatchObject({ code: 'conflict' });
    const { id } = (await world.engine.create({ org: ORG }, { network: { secrets: [name] } })).sandbox;
    await world.clock.advance(2 * 3_600_000);
    await secrets.putRules(ORG, []);
    expect(await secrets.missing(ORG, [name])).toEqual([]);
    await world.engine.kill({ org: ORG }, id);
    await secrets.putRules(ORG, []);
    expect(await secrets.missing(ORG, [name])).toEqual([name]);
  });
});
