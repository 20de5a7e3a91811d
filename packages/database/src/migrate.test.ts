import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseKinds, type FreshDatabase, freshDatabase, ManualClock } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { migrate } from './migrate.ts';

const THINGS = `-- Things, and that they're never renamed.
CREATE TABLE things (id {integer} PRIMARY KEY, name TEXT NOT NULL) {strict};
INSERT INTO things (id, name) VALUES (1, 'semi;colon {strict}');
-- {sqlite}
CREATE TRIGGER things_keep_names BEFORE UPDATE OF name ON things
BEGIN
  SELECT RAISE(ABORT, 'names stay');
END;
-- {end}
-- {postgres}
CREATE FUNCTION keep_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'names stay';
END $$;
CREATE TRIGGER things_keep_names BEFORE UPDATE OF name ON things
  FOR EACH ROW EXECUTE FUNCTION keep_names();
-- {end}
`;
const MORE = 'ALTER TABLE things ADD COLUMN size {integer};';

describe.each(databaseKinds)('migrating %s', (kind) => {
  let fresh: FreshDatabase;
  let directory: string;

  beforeEach(async () => {
    fresh = await freshDatabase(kind, { migrated: false });
    directory = await mkdtemp(join(tmpdir(), 'torpor-migrations-'));
  });
  afterEach(async () => {
    await fresh.dispose();
    await rm(directory, { recursive: true });
  });

  const write = (name: string, sql: string) => writeFile(join(directory, name), sql);
  const record = () =>
    fresh.db.query('SELECT version, name, applied_at FROM schema_migrations ORDER BY version');
  const columns = async (table: string) => {
    const rows = await fresh.db.query(`SELECT * FROM ${table}`);
    return rows.map((row) => Object.keys(row));
  };

  it('applies missing migrations in order, once (R17)', async () => {
    const clock = new ManualClock(1_700_000_000_000);
    await write('0001_things.sql', THINGS);
    expect(await migrate(fresh.db, [directory], { clock })).toEqual(['0001_things']);
    await write('0002_more.sql', MORE);
    clock.advance(5);
    expect(await migrate(fresh.db, [directory], { clock })).toEqual(['0002_more']);
    expect(await migrate(fresh.db, [directory], { clock })).toEqual([]);
    expect(await record()).toEqual([
      { version: 1, name: '0001_things', applied_at: 1_700_000_000_000 },
      { version: 2, name: '0002_more', applied_at: 1_700_000_000_005 },
    ]);
    expect(await columns('things')).toEqual([['id', 'name', 'size']]);
  });

  it('runs whole files, with triggers, semicolons in literals and the keywords of the dialect', async () => {
    await write('0001_things.sql', THINGS);
    await migrate(fresh.db, [directory]);
    expect(await fresh.db.query('SELECT name FROM things')).toEqual([{ name: 'semi;colon {strict}' }]);
    const rename = fresh.db.transaction((tx) => tx.query("UPDATE things SET name = 'x'"));
    await expect(rename).rejects.toMatchObject({ kind: 'check', message: 'names stay' });
  });

  it('leaves nothing of a migration that fails, and keeps those before it', async () => {
    await write('0001_things.sql', THINGS);
    await write('0002_broken.sql', 'CREATE TABLE half (a TEXT); INSERT INTO nowhere VALUES (1);');
    await expect(migrate(fresh.db, [directory])).rejects.toThrow(/nowhere/);
    expect(await record()).toMatchObject([{ version: 1 }]);
    await expect(fresh.db.query('SELECT a FROM half')).rejects.toThrow(/half/);
  });

  it('leaves unknown tables, columns and rows alone (R17)', async () => {
    await write('0001_things.sql', THINGS);
    await migrate(fresh.db, [directory]);
    await fresh.db.migration((tx) =>
      tx.script(`CREATE TABLE theirs (a TEXT); INSERT INTO theirs VALUES ('kept');
        ALTER TABLE things ADD COLUMN drifted TEXT; ALTER TABLE schema_migrations ADD COLUMN note TEXT;`),
    );
    await write('0002_more.sql', MORE);
    await migrate(fresh.db, [directory]);
    expect(await fresh.db.query('SELECT a FROM theirs')).toEqual([{ a: 'kept' }]);
    expect(await columns('things')).toEqual([['id', 'name', 'drifted', 'size']]);
  });

  it('refuses a database of a newer version, names both, and changes nothing', async () => {
    await write('0001_things.sql', THINGS);
    await migrate(fresh.db, [directory]);
    await fresh.db.transaction((tx) =>
      tx.query("INSERT INTO schema_migrations VALUES (3, '0003_newer', 'its checksum', 1)"),
    );
    await write('0002_more.sql', MORE);
    await expect(migrate(fresh.db, [directory])).rejects.toMatchObject({
      code: 'version_unsupported',
      message: expect.stringMatching(/0003_newer.*0002_more/),
    });
    expect(await record()).toMatchObject([{ version: 1 }, { version: 3 }]);
    expect(await columns('things')).toEqual([['id', 'name']]);
  });

  it('refuses a migration that changed after it was applied, and names it', async () => {
    await write('0001_things.sql', THINGS);
    await migrate(fresh.db, [directory]);
    await write('0001_things.sql', `${THINGS}\n`);
    await write('0002_more.sql', MORE);
    await expect(migrate(fresh.db, [directory])).rejects.toMatchObject({
      code: 'internal',
      message: expect.stringContaining('0001_things'),
    });
    expect(await record()).toMatchObject([{ version: 1 }]);
  });

  it('lets servers that start at once take turns', async () => {
    await write('0001_things.sql', THINGS);
    await write('0002_more.sql', MORE);
    const servers = [fresh.db, await fresh.openAnother(), await fresh.openAnother()];
    const applied = await Promise.all(servers.map((server) => migrate(server, [directory])));
    expect(applied.flat().sort()).toEqual(['0001_things', '0002_more']);
  });

  it('merges several directories by number', async () => {
    const another = join(directory, 'another');
    await mkdir(another);
    await write('0001_things.sql', THINGS);
    await write('0003_third.sql', 'CREATE INDEX things_by_size ON things (size);');
    await writeFile(join(another, '0002_more.sql'), MORE);
    expect(await migrate(fresh.db, [another, directory])).toEqual(['0001_things', '0002_more', '0003_third']);
    expect(await migrate(fresh.db, [directory, another])).toEqual([]);
  });

  it('accepts a database whose migrations have moved to another directory since', async () => {
    await write('0001_things.sql', THINGS);
    await write('0002_more.sql', MORE);
    await migrate(fresh.db, [directory]);
    const another = join(directory, 'another');
    await mkdir(another);
    await rename(join(directory, '0002_more.sql'), join(another, '0002_more.sql'));
    expect(await migrate(fresh.db, [directory, another])).toEqual([]);
  });
});

describe('migration files', () => {
  let fresh: FreshDatabase;
  let directory: string;

  beforeEach(async () => {
    fresh = await freshDatabase('sqlite', { migrated: false });
    directory = await mkdtemp(join(tmpdir(), 'torpor-migrations-'));
  });
  afterEach(async () => {
    await fresh.dispose();
    await rm(directory, { recursive: true });
  });

  it.each([
    ['with the same number', { '0001_a.sql': '', '0001_b.sql': '' }, /0001_a.*0001_b/],
    ['with a number missing', { '0001_a.sql': '', '0003_c.sql': '' }, /0003_c.* 2 /],
    ['with the first number missing', { '0002_b.sql': '' }, /0002_b.* 1 /],
    ['without a number', { 'things.sql': '' }, /things\.sql/],
    ['with a block that has no end', { '0001_a.sql': '-- {sqlite}\n' }, /sqlite.*no end/],
    ['with a block inside another', { '0001_a.sql': '-- {sqlite}\n-- {postgres}\n-- {end}' }, /postgres/],
    ['with an end alone', { '0001_a.sql': '-- {end}' }, /end.*out of place/],
  ])('are refused %s', async (_, files, message) => {
    for (const [name, sql] of Object.entries(files)) await writeFile(join(directory, name), sql);
    await expect(migrate(fresh.db, [directory])).rejects.toMatchObject({ code: 'internal', message });
  });

  it('are refused with the same number in two directories', async () => {
    const another = join(directory, 'another');
    await mkdir(another);
    await writeFile(join(directory, '0001_a.sql'), '');
    await writeFile(join(another, '0001_b.sql'), '');
    await expect(migrate(fresh.db, [directory, another])).rejects.toMatchObject({
      code: 'internal',
      message: /0001_a.*0001_b/,
    });
  });

  it('may lie beside other files', async () => {
    await writeFile(join(directory, 'README.md'), 'Read me.');
    await writeFile(join(directory, '0001_a.sql'), 'CREATE TABLE a (b TEXT);');
    expect(await migrate(fresh.db, [directory])).toEqual(['0001_a']);
  });
});
