/**
 * The world of a history of several nodes: machines with a runtime and a disk each, one database and one bucket. What the guard of
 * a machine does is done here: before a lease ends, everything that runs on the machine has ended.
 */
import { setImmediate as turn } from 'node:timers/promises';
import {
  createEngine,
  DEFAULT_SETTINGS,
  type Engine,
  noFaults,
  openGate,
  type Runtime,
  randomIds,
  STORE_SETTINGS,
} from '@torpor/engine';
import {
  type FreshDatabase,
  freshDatabase,
  ManualClock,
  MemoryBucket,
  MemoryReplicas,
  MemoryRuntime,
  VirtualStore,
} from '@torpor/engine/testing';
import { defaultsOf, type SandboxId, TorporError } from '@torpor/protocol';
import { CrashSwitch } from '../crash-switch.ts';

export interface NodeServer {
  readonly engine: Engine;
  readonly crashSwitch: CrashSwitch;
}

export interface Machine {
  readonly name: string;
  readonly store: VirtualStore;
  readonly runtime: MemoryRuntime;
  readonly replicas: MemoryReplicas;
  readonly db: FreshDatabase['db'];
  server: NodeServer | undefined;
  /** The guard has ended what ran here, and the server can start nothing more. */
  isEnded: boolean;
}

const NAMES = ['a', 'b', 'c'];
const HOUR_MS = 3_600_000;
/** A server that calls nothing for so many turns has nothing to do. */
const IDLE_TURNS = 40;

export class NodeWorld {
  readonly clock = new ManualClock();
  readonly bucket = new MemoryBucket();
  readonly machines: readonly Machine[];
  /** The ledger is known to have no gaps up to here. */
  checkedPosition = 0;
  readonly #fresh: FreshDatabase;
  #started = 0;

  private constructor(fresh: FreshDatabase, databases: readonly FreshDatabase['db'][]) {
    this.#fresh = fresh;
    this.machines = databases.map((db, i) => {
      const store = new VirtualStore();
      return {
        name: NAMES[i] ?? '',
        store,
        runtime: new MemoryRuntime({ files: store }),
        replicas: new MemoryReplicas(store, undefined, this.bucket),
        db,
        server: undefined,
        isEnded: false,
      };
    });
  }

  static async make(): Promise<NodeWorld> {
    const fresh = await freshDatabase('postgres');
    // A crash of the database is not part of these histories, so no commit has to wait for the disk.
    const name = new URL(fresh.url ?? '').pathname.slice(1);
    await fresh.db.transaction((tx) => tx.query(`ALTER DATABASE ${name} SET synchronous_commit = off`));
    const databases = await Promise.all(NAMES.map(() => fresh.openAnother({ writers: 4, readers: 2 })));
    return new NodeWorld(fresh, databases);
  }

  get db(): FreshDatabase['db'] {
    return this.#fresh.db;
  }

  machine(n: number): Machine {
    const found = this.machines[n % this.machines.length];
    if (found === undefined) throw new Error('There is no such machine.');
    return found;
  }

  named(name: string): Machine | undefined {
    return this.machines.find((one) => one.name === name);
  }

  /** A server that answers, also one of a machine that was cut off. */
  alive({ server }: Machine): NodeServer | undefined {
    return server === undefined || server.crashSwitch.crashed ? undefined : server;
  }

  /** The server of the machine. It is started when it does not run. */
  async server(machine: Machine): Promise<NodeServer> {
    const running = this.alive(machine);
    if (running !== undefined) return running;
    machine.isEnded = false;
    const crashSwitch = new CrashSwitch();
    const engine = this.#engine(machine, crashSwitch);
    const server = { engine, crashSwitch };
    machine.server = server;
    const outcome = this.watch(engine.start({ rounds: false }));
    await this.until(() => outcome.done || crashSwitch.crashed);
    if (!crashSwitch.crashed && !outcome.failed) return server;
    crashSwitch.crash();
    return this.server(machine);
  }

  #engine(machine: Machine, crashSwitch: CrashSwitch): Engine {
    const { name, store, replicas, db } = machine;
    const runtime = crashSwitch.port(guarded(machine));
    return createEngine({
      db: crashSwitch.database(db),
      store: crashSwitch.port(store),
      runtimes: new Map([[runtime.name, runtime]]),
      defaultRuntime: runtime.name,
      gate: openGate,
      clock: crashSwitch.clock(this.clock),
      ids: randomIds,
      // The clock of the history does not follow that of the database, by which leases end.
      settings: {
        ...DEFAULT_SETTINGS,
        pageSize: 3,
        nodeClockMs: Number.MAX_SAFE_INTEGER,
        nodeLeaseMs: HOUR_MS,
      },
      faults: noFaults,
      report: () => {},
      serverId: `server-${name}-${++this.#started}`,
      ownsDataDirectory: true,
      dataDirectoryId: `directory-of-${name}`,
      replicas,
      // No room: everything that may be evicted is.
      storeSettings: { ...defaultsOf(STORE_SETTINGS), cacheBytes: 1, cachePercent: 0 },
      cluster: {
        name,
        address: `http://${name}.test:7676`,
        version: '0.0.0',
        memoryMb: 65_536,
        processors: 2,
        handOver: async (to, { id, org }) => {
          const other = this.named(to.node);
          const server = other === undefined ? undefined : this.alive(other);
          if (server === undefined) throw new TorporError('unreachable', `${to.node} does not answer.`);
          await crashSwitch.call(() => server.engine.resume({ org }, id, {}));
        },
      },
    });
  }

  /** The machine cannot renew its lease: its guard ends what runs there. The server may be alive and not know. */
  async endLease(machine: Machine): Promise<void> {
    machine.isEnded = true;
    await endInstances(machine.runtime);
    await this.#write('UPDATE nodes SET lease_until = {now} - 60000 WHERE name = $1', machine.name);
  }

  /** One node that has held its own lease for long enough looks at those of the others. */
  async fence(by: Machine): Promise<void> {
    const { engine } = await this.server(by);
    await this.#write('UPDATE nodes SET held_since = {now} - 7200000 WHERE name = $1', by.name);
    await this.run(engine.fenceDeadNodes());
  }

  async #write(sql: string, name: string): Promise<void> {
    await this.#fresh.db.transaction((tx) => tx.query(sql, [name]));
    // What the directories have read is old now.
    this.clock.advance(1_000);
  }

  watch(promise: Promise<unknown>): { done: boolean; failed: boolean } {
    const outcome = { done: false, failed: false };
    promise.then(
      () => Object.assign(outcome, { done: true }),
      () => Object.assign(outcome, { done: true, failed: true }),
    );
    return outcome;
  }

  /** Waits for work that a crash of its server may leave without an end. */
  async run(work: Promise<unknown>): Promise<void> {
    const outcome = this.watch(work);
    let idle = 0;
    await this.until(() => outcome.done || (this.#busy().length === 0 && ++idle > IDLE_TURNS));
  }

  /** Waits until no server does anything any more, also what no request waits for. */
  async idle(): Promise<void> {
    let idle = 0;
    await this.until(() => {
      idle = this.#busy().length === 0 ? idle + 1 : 0;
      return idle > IDLE_TURNS;
    });
  }

  /** The servers that wait for the database. */
  #busy(): CrashSwitch[] {
    const switches = this.machines.flatMap(({ server }) => server?.crashSwitch ?? []);
    return switches.filter(({ inFlight }) => inFlight > 0);
  }

  /** Runs until `done`, and advances the clock whenever nothing else can proceed. */
  async until(done: () => boolean): Promise<void> {
    for (let round = 0; round < 3_000; ) {
      for (let i = 0; i < 4; i++) {
        if (done()) return;
        await turn();
      }
      const busy = this.#busy();
      if (busy.length > 0) {
        await Promise.race(busy.map(({ callEnd }) => callEnd));
        continue;
      }
      if (++round % 60 === 0) this.#beat();
      this.clock.advanceToNext();
    }
    throw new Error('Some work never ended.');
  }

  #beat(): void {
    for (const machine of this.machines) {
      const server = this.alive(machine);
      if (server === undefined) continue;
      server.engine
        .heartbeat()
        .then(() => server.engine.reconcile())
        .catch(() => {});
    }
  }

  /** The machines on which the sandbox runs now. There is never more than one. */
  async runsOn(id: SandboxId): Promise<Machine[]> {
    const found: Machine[] = [];
    for (const machine of this.machines) {
      for await (const instance of machine.runtime.list()) {
        if (instance.sandboxId !== id) continue;
        if ((await machine.runtime.observe(instance)).is === 'running') found.push(machine);
      }
    }
    return found;
  }

  /** What the database has, for a person who looks for the cause of a failure. */
  async describe(): Promise<string> {
    const tables = [
      'SELECT * FROM nodes',
      'SELECT * FROM servers',
      'SELECT * FROM operations WHERE ended_at IS NULL',
      "SELECT id, state, node, generation, checkpoint_id, evidence FROM sandboxes WHERE state NOT IN ('killed', 'failed')",
      'SELECT position, sandbox_id, seq, type, state, generation, data FROM events ORDER BY position DESC LIMIT 120',
    ];
    const texts: string[] = [`now ${this.clock.now()}`];
    for (const sql of tables)
      for (const row of await this.#fresh.db.query(sql)) texts.push(JSON.stringify(row));
    return texts.join('\n');
  }

  async dispose(): Promise<void> {
    for (const { server } of this.machines) server?.crashSwitch.crash();
    await this.#fresh.dispose();
  }
}

async function endInstances(runtime: MemoryRuntime): Promise<void> {
  for await (const { sandboxId } of runtime.list()) runtime.vanish(sandboxId, false);
}

/** Once the guard has ended everything, no call of the server has an effect on what runs. */
function guarded(machine: Machine): Runtime {
  const requireGuard = () => {
    if (machine.isEnded) throw new TorporError('unreachable', 'The guard has ended everything here.');
  };
  return new Proxy(machine.runtime, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const method = value.bind(target) as (...args: unknown[]) => unknown;
      if (name !== 'start' && name !== 'thaw') return method;
      return async (...args: unknown[]) => {
        requireGuard();
        const result = await method(...args);
        if (machine.isEnded) await endInstances(machine.runtime);
        requireGuard();
        return result;
      };
    },
  });
}
