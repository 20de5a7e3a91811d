/** The world of a history: one or two servers on one database, one runtime, one store and one clock. */
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import {
  createEngine,
  DEFAULT_SETTINGS,
  type Engine,
  noFaults,
  openGate,
  type Runtime,
  randomIds,
} from '@torpor/engine';
import {
  type DatabaseKind,
  type Fault,
  type FaultyCall,
  type FreshDatabase,
  freshDatabase,
  ManualClock,
  MemoryRuntime,
  VirtualStore,
  withFaults,
} from '@torpor/engine/testing';
import { CrashSwitch } from './crash-switch.ts';

export interface Server {
  readonly engine: Engine;
  readonly crashSwitch: CrashSwitch;
}

export class HistoryWorld {
  readonly clock = new ManualClock();
  readonly store = new VirtualStore();
  readonly runtime: MemoryRuntime;
  readonly servers: (Server | null)[];
  readonly #faulty: Runtime;
  readonly #fresh: FreshDatabase;
  readonly #databases: FreshDatabase['db'][];
  #scheduledFaults: { readonly call: FaultyCall; readonly fault: Fault }[] = [];
  #started = 0;

  private constructor(fresh: FreshDatabase, databases: FreshDatabase['db'][], snapshotWhileRunning: boolean) {
    this.runtime = new MemoryRuntime({ files: this.store, capabilities: { snapshotWhileRunning } });
    this.#fresh = fresh;
    this.#databases = databases;
    this.servers = databases.map(() => null);
    this.#faulty = withFaults(this.runtime, this.clock, (call) => this.#nextFault(call));
  }

  /** SQLite has one server. On PostgreSQL two servers share the database. */
  static async make(kind: DatabaseKind, snapshotWhileRunning: boolean): Promise<HistoryWorld> {
    const fresh = await freshDatabase(kind);
    const databases = kind === 'sqlite' ? [fresh.db] : [fresh.db, await fresh.openAnother()];
    return new HistoryWorld(fresh, databases, snapshotWhileRunning);
  }

  get db(): FreshDatabase['db'] {
    return this.#fresh.db;
  }

  scheduleFault(call: FaultyCall, fault: Fault): void {
    this.#scheduledFaults.push({ call, fault });
  }

  clearFaults(): void {
    this.#scheduledFaults = [];
  }

  #nextFault(call: FaultyCall): Fault | undefined {
    const index = this.#scheduledFaults.findIndex((order) => order.call === call);
    return index < 0 ? undefined : this.#scheduledFaults.splice(index, 1)[0]?.fault;
  }

  /** The server of that number. It is started when it does not run. */
  async server(n: number): Promise<Server> {
    const index = n % this.servers.length;
    const living = this.servers[index];
    if (living && !living.crashSwitch.crashed) return living;
    const database = this.#databases[index];
    if (database === undefined) throw new Error('There is no such server.');
    const crashSwitch = new CrashSwitch();
    const engine = createEngine({
      db: crashSwitch.database(database),
      store: crashSwitch.port(this.store),
      runtimes: new Map([[this.runtime.name, crashSwitch.port(this.#faulty)]]),
      defaultRuntime: this.runtime.name,
      gate: openGate,
      clock: crashSwitch.clock(this.clock),
      ids: randomIds,
      settings: { ...DEFAULT_SETTINGS, pageSize: 3 },
      faults: noFaults,
      report: () => {},
      serverId: `server-${index}-${++this.#started}`,
      ownsDataDirectory: this.#databases.length === 1,
      dataDirectoryId: 'home',
    });
    const server = { engine, crashSwitch };
    this.servers[index] = server;
    const outcome = this.watch(engine.start({ rounds: false }));
    await this.until(() => outcome.done || crashSwitch.crashed);
    if (!crashSwitch.crashed && !outcome.failed) return server;
    // The server crashed while it started, or could not prepare its template: start another one.
    crashSwitch.crash();
    return this.server(n);
  }

  watch(promise: Promise<unknown>): { done: boolean; failed: boolean } {
    const outcome = { done: false, failed: false };
    const end = (failed: boolean) => Object.assign(outcome, { done: true, failed });
    promise.then(
      () => end(false),
      () => end(true),
    );
    return outcome;
  }

  /**
   * Runs until `done`, and advances the clock whenever nothing else can proceed. From time to time the reconcilers run, as
   * in a real server.
   */
  async until(done: () => boolean): Promise<void> {
    for (let round = 0; round < 3_000; ) {
      for (let i = 0; i < 4; i++) {
        if (done()) return;
        await turn();
      }
      const busy = this.servers.some((server) => server !== null && server.crashSwitch.inFlight > 0);
      if (busy) {
        await delay(1);
        continue;
      }
      if (++round % 60 === 0) this.#reconcileAll();
      this.clock.advanceToNext();
    }
    throw new Error('Some work never ended.');
  }

  #reconcileAll(): void {
    for (const server of this.servers) {
      if (!server || server.crashSwitch.crashed) continue;
      server.engine
        .heartbeat()
        .then(() => server.engine.reconcile())
        .catch(() => {});
    }
  }

  async dispose(): Promise<void> {
    for (const server of this.servers) server?.crashSwitch.crash();
    await this.#fresh.dispose();
  }
}
