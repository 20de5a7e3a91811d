/** Several nodes for tests: engines on one PostgreSQL and one bucket, each with a runtime and a store of its own in memory. */
import { createEngine, type Engine, type EngineDependencies } from '../src/engine.ts';
import { noFaults } from '../src/fault-points.ts';
import { randomIds } from '../src/ports/ids.ts';
import type { ClusterOptions } from '../src/ports/nodes.ts';
import { openGate } from '../src/ports/traffic-gate.ts';
import { DEFAULT_SETTINGS, type Settings } from '../src/settings.ts';
import { type FreshDatabase, freshDatabase } from './fresh-database.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryBucket, MemoryReplicas } from './memory-replicas.ts';
import { MemoryRuntime } from './memory-runtime.ts';
import { VirtualStore } from './virtual-files.ts';
import type { Reported } from './world.ts';

/** What stays when the server of a node dies. */
export interface TestMachine {
  readonly name: string;
  readonly store: VirtualStore;
  readonly runtime: MemoryRuntime;
  readonly replicas: MemoryReplicas;
}

export interface TestNode extends TestMachine {
  readonly engine: Engine;
}

export interface NodeChanges {
  /** Absent: the machine of the node's name. */
  readonly machine?: string;
  readonly cluster?: Partial<ClusterOptions> | undefined;
  readonly parts?: Partial<EngineDependencies>;
}

export interface Cluster {
  readonly fresh: FreshDatabase;
  readonly clock: ManualClock;
  readonly bucket: MemoryBucket;
  readonly reported: Reported[];
  /** Starts the server of a node. A second start of the same name has the machine of the first. */
  start(name: string, changes?: NodeChanges): Promise<TestNode>;
  /** Lets all servers replicate until nothing waits. */
  replicated(): Promise<void>;
  /** The lease of the node ended a minute ago, by the clock of the database. */
  expire(name: string): Promise<void>;
  /** Another node has raised the epoch. */
  raiseEpoch(name: string): Promise<void>;
  /** The node has held its lease for an hour. */
  settleLease(name: string): Promise<void>;
  dispose(): Promise<void>;
}

export async function makeCluster(settings: Partial<Settings> = {}): Promise<Cluster> {
  const fresh = await freshDatabase('postgres');
  const clock = new ManualClock();
  const bucket = new MemoryBucket();
  const reported: Reported[] = [];
  const machines = new Map<string, TestMachine>();
  const engines: Engine[] = [];
  let servers = 0;

  const write = async (sql: string, name: string) => {
    await fresh.db.transaction((tx) => tx.query(sql, [name]));
    // What a directory has read is old now.
    clock.advance(1_000);
  };

  const machineOf = (name: string): TestMachine => {
    const known = machines.get(name);
    if (known !== undefined) return known;
    const store = new VirtualStore();
    const runtime = new MemoryRuntime({ files: store });
    const machine = { name, store, runtime, replicas: new MemoryReplicas(store, undefined, bucket) };
    machines.set(name, machine);
    return machine;
  };

  return {
    fresh,
    clock,
    bucket,
    reported,
    start: async (name, { machine: machineName = name, cluster, parts } = {}) => {
      const machine = machineOf(machineName);
      const { store, runtime, replicas } = machine;
      const engine = createEngine({
        db: fresh.db,
        store,
        runtimes: new Map([[runtime.name, runtime]]),
        defaultRuntime: runtime.name,
        gate: openGate,
        clock,
        ids: randomIds,
        // The clock of the tests does not follow that of the database.
        settings: {
          ...DEFAULT_SETTINGS,
          nodeClockMs: Number.MAX_SAFE_INTEGER,
          nodeLeaseMs: 600_000,
          ...settings,
        },
        faults: noFaults,
        report: (what, facts) => reported.push({ what, facts }),
        serverId: `server-${++servers}`,
        ownsDataDirectory: true,
        dataDirectoryId: `directory-of-${name}`,
        replicas,
        cluster: {
          name,
          address: `http://${name}.test:7676`,
          version: '0.0.0',
          memoryMb: 4_096,
          processors: 2,
          ...cluster,
        },
        ...parts,
      });
      await engine.start({ rounds: false });
      engines.push(engine);
      return { ...machine, engine };
    },
    replicated: async () => {
      for (let tries = 0; tries < 500; tries++) {
        clock.advance(1_000);
        for (const engine of engines) await engine.replicate().catch(() => {});
        await new Promise((resolve) => setImmediate(resolve));
        if ((await engines.at(-1)?.replication())?.waiting === 0) return;
      }
      throw new Error('It is never replicated.');
    },
    expire: async (name) => {
      await write('UPDATE nodes SET lease_until = {now} - 60000 WHERE name = $1', name);
    },
    raiseEpoch: (name) => write('UPDATE nodes SET epoch = epoch + 1 WHERE name = $1', name),
    settleLease: async (name) => {
      await write('UPDATE nodes SET held_since = {now} - 3600000 WHERE name = $1', name);
    },
    dispose: async () => {
      await Promise.allSettled(engines.map((one) => one.stop()));
      await fresh.dispose();
    },
  };
}
