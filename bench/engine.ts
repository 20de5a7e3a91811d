/**
 * The engine alone: the time of each operation with a runtime that takes no time, on both databases, and how it grows
 * with the number of sandboxes in the tables.
 *
 *   npm run bench:engine             100, 10,000 and 100,000 sandboxes
 *   npm run bench:engine -- 100 5000 other numbers
 *
 * The unit is one durable transaction of three statements on the same database in the same run.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate, openPostgres, openSqlite } from '@torpor/database';
import {
  createEngine,
  type Database,
  DEFAULT_SETTINGS,
  noFaults,
  openGate,
  randomIds,
  systemClock,
} from '@torpor/engine';
import { MemoryRuntime } from '@torpor/engine/testing/memory-runtime';
import { VirtualStore } from '@torpor/engine/testing/virtual-files';
import type { SandboxId } from '@torpor/protocol';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import { startPrivatePostgres } from '../tests/setup/private-postgres.ts';
import { fill } from './engine/fill.ts';
import { row, time } from './measure.ts';

const sizes = process.argv.slice(2).map(Number);
const caller = { org: 'measured' };

async function bench(name: string, db: Database, size: number, before: number): Promise<void> {
  const store = new VirtualStore();
  const runtime = new MemoryRuntime({ files: store });
  await db.transaction((tx) => tx.query("DELETE FROM templates WHERE runtime = 'memory'"));
  const engine = createEngine({
    db,
    store,
    runtimes: new Map([[runtime.name, runtime]]),
    defaultRuntime: runtime.name,
    gate: openGate,
    clock: systemClock,
    ids: randomIds,
    settings: DEFAULT_SETTINGS,
    faults: noFaults,
    report: () => {},
    serverId: `bench-${size}`,
    ownsDataDirectory: true,
    dataDirectoryId: 'home',
  });
  await engine.start({ rounds: false });
  await fill(db, size - before);

  const unit = await time(200, (i) =>
    db.transaction(async (tx) => {
      for (const n of [1, 2, 3]) {
        await tx.query(
          `INSERT INTO servers (id, started_at, lease_until) VALUES ($1, 0, 0)
           ON CONFLICT (id) DO UPDATE SET lease_until = servers.lease_until + 1`,
          [`unit-${(i + n) % 10}`],
        );
      }
    }),
  );
  const ids: SandboxId[] = [];
  const measured = {
    create: await time(200, async () => ids.push((await engine.create(caller, {})).sandbox.id)),
    pause: await time(200, (i) => engine.pause(caller, ids[i] ?? 'sbx_')),
    resume: await time(200, (i) => engine.resume(caller, ids[i] ?? 'sbx_')),
    snapshot: await time(200, (i) => engine.snapshot(caller, ids[i] ?? 'sbx_')),
    fork: await time(50, (i) => engine.fork(caller, ids[i] ?? 'sbx_')),
    'get (with observation)': await time(200, (i) => engine.get('measured', ids[i] ?? 'sbx_')),
    'set lifetime': await time(200, (i) => engine.setLifetime('measured', ids[i] ?? 'sbx_', 3_600)),
    kill: await time(200, (i) => engine.kill(caller, ids[i] ?? 'sbx_')),
    reconcile: await time(3, () => engine.reconcile()),
    sweep: await time(20, () => engine.sweep()),
  };
  await engine.stop();
  console.log(`\n${name}, ${size.toLocaleString('en')} sandboxes in the tables`);
  console.log(row(['', 'per second', 'p50 ms', 'p95 ms', '× unit']));
  for (const [what, times] of [['unit', unit] as const, ...Object.entries(measured)]) {
    console.log(row([what, times.perSecond, times.p50, times.p95, times.p50 / unit.p50]));
  }
}

const dir = await mkdtemp(join(tmpdir(), 'torpor-bench-'));
const postgres = await startPrivatePostgres();
try {
  const databases: [string, Database][] = [];
  const sqlite = await openSqlite({ path: join(dir, 'torpor.db') });
  await migrate(sqlite, ALL_MIGRATIONS);
  databases.push(['SQLite', sqlite]);
  if (postgres === undefined) console.log('PostgreSQL is not installed, so it is left out.');
  else {
    const shared = await openPostgres({ url: postgres.url });
    await migrate(shared, ALL_MIGRATIONS);
    databases.push(['PostgreSQL', shared]);
  }
  for (const [name, db] of databases) {
    let before = 0;
    for (const size of sizes.length > 0 ? sizes : [100, 10_000, 100_000]) {
      await bench(name, db, size, before);
      before = size;
    }
    await db.close();
  }
} finally {
  await postgres?.stop();
  await rm(dir, { recursive: true });
}
