/** Plays a history and checks the invariants after every step. */
import { isDeepStrictEqual } from 'node:util';
import { randomIds } from '@torpor/engine';
import type { CheckpointId, SandboxId, SandboxView } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import { type ExpectedState, ExpectedStates } from './expected-state.ts';
import type { Step, Verb } from './steps.ts';
import type { HistoryWorld, Server } from './world.ts';

let histories = 0;

const REPORTS_LOSSES = new Set(['sandbox.started', 'sandbox.resumed', 'sandbox.recovered']);

type SandboxRow = {
  state: SandboxView['state'];
  generation: number;
  checkpoint_id: CheckpointId | null;
  busy: number;
};

export class Player {
  readonly #world: HistoryWorld;
  readonly #org: string;
  readonly #expected = new ExpectedStates();
  readonly #known: SandboxId[] = [];
  readonly #keys = new Map<number, SandboxId>();
  /** The first unexpected error. */
  #unexpected: unknown;
  #runtimeLied = false;
  #pending: { readonly server: Server; readonly outcome: { done: boolean } }[] = [];

  constructor(world: HistoryWorld) {
    this.#world = world;
    this.#org = `history-${++histories}`;
  }

  async play(steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      await this.#step(step);
      await this.#checkRows();
    }
    await this.#settle();
    await this.#recover();
    await this.#checkRecovered();
    await this.#leaveNothing();
  }

  async #step(step: Step): Promise<void> {
    const world = this.#world;
    switch (step.do) {
      case 'create':
        return this.#create(await world.server(step.server), step.key);
      case 'ask': {
        const id = this.#known[step.of % Math.max(1, this.#known.length)];
        if (id === undefined) return;
        const server = await world.server(step.server);
        this.#track(server, this.#request(server, step.verb, id, step.n));
        return;
      }
      case 'work':
        return this.#work(step.of, step.text);
      case 'vanish':
        return this.#withSandbox(step.of, (id, expected) => {
          world.runtime.vanish(id, step.forget);
          expected.counter = null;
          if (step.forget) expected.mayLoseFiles = true;
        });
      case 'damage':
        return this.#damage(step.of, step.how, step.memoryOnly);
      case 'fault':
        this.#runtimeLied ||= step.fault === 'lie';
        return world.scheduleFault(step.call, step.fault);
      case 'upgrade':
        // After an upgrade older memory images cannot be used; files can.
        world.runtime.build = `build-${Math.random()}`;
        for (const id of this.#known) this.#expected.get(id).counter = null;
        return;
      case 'crash':
        return (await world.server(step.server)).crashSwitch.crashAfter(step.halfCalls);
      case 'restart':
        (await world.server(step.server)).crashSwitch.crash();
        await world.server(step.server);
        return;
      case 'advance':
        return world.clock.advance(step.ms);
      case 'reconcile':
      case 'sweep':
      case 'inspectCheckpoints': {
        const server = await world.server(step.server);
        this.#track(server, server.engine[step.do]());
        return;
      }
      case 'settle':
        return this.#settle();
    }
  }

  #withSandbox(of: number, work: (id: SandboxId, expected: ExpectedState) => void): void {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    if (id !== undefined) work(id, this.#expected.get(id));
  }

  async #work(of: number, text: string): Promise<void> {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    if (id === undefined) return;
    const expected = this.#expected.get(id);
    const sandbox = await this.#read(id);
    const path = `/home/${text}`;
    if (!this.#world.runtime.work(id, path, text)) return;
    if (sandbox?.state === 'running' || sandbox?.state === 'pausing') {
      expected.files?.set(path, text);
      if (expected.counter !== null) expected.counter++;
    } else {
      // No caller knows that the sandbox runs. Such a start may be undone, with everything it wrote.
      expected.unpromised.add(path);
      expected.counter = null;
    }
  }

  async #damage(of: number, how: 'missing' | 'corrupt', memoryOnly: boolean): Promise<void> {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    if (id === undefined) return;
    const [row] = await this.#world.db.query<{ checkpoint_id: CheckpointId | null }>(
      'SELECT checkpoint_id FROM sandboxes WHERE id = $1',
      [id],
    );
    if (row?.checkpoint_id == null) return;
    if (memoryOnly) {
      // Processes may be lost and must be reported as lost. Files must not be lost.
      const { memoryEntries } = this.#world.runtime;
      for (const entry of memoryEntries) this.#world.store.damage(row.checkpoint_id, how, entry);
      for (const other of this.#known) this.#expected.get(other).counter = null;
      return;
    }
    this.#world.store.damage(row.checkpoint_id, how);
    // Forks use the same checkpoint.
    for (const other of this.#known) this.#expected.get(other).mayLoseFiles = true;
  }

  /** Watches a request without waiting for it: the next step may run while the request is in progress. */
  #track(server: Server, request: Promise<unknown>): void {
    request.catch((thrown: unknown) => {
      const typed = thrown instanceof TorporError && thrown.code !== 'internal';
      // Only a runtime that lies may cause an internal error.
      if (!typed && !(this.#runtimeLied && thrown instanceof TorporError)) this.#unexpected ??= thrown;
    });
    this.#pending.push({ server, outcome: this.#world.watch(request) });
  }

  #create(server: Server, key: number | null): void {
    const caller = { org: this.#org, ...(key === null ? {} : { idempotencyKey: `key-${key}` }) };
    const request = server.engine.create(caller, {
      fallback: ['files', 'previous'],
      idleSeconds: 120,
      services: [{ name: 'web', command: 'serve' }],
    });
    this.#track(
      server,
      request.then(({ sandbox: { id } }) => {
        if (key !== null) {
          // A second answer to the same request names the same sandbox.
          const before = this.#keys.get(key);
          if (before !== undefined && before !== id) throw new Error(`Key ${key} made ${before} and ${id}.`);
          this.#keys.set(key, id);
        }
        if (this.#known.includes(id)) return;
        this.#known.push(id);
        this.#expected.add(id, null);
      }),
    );
  }

  #request({ engine }: Server, verb: Verb, id: SandboxId, n: number): Promise<unknown> {
    const caller = { org: this.#org };
    switch (verb) {
      case 'pause':
        return engine.pause(caller, id, n === 0 ? { mode: 'files' } : {});
      case 'resume':
        return engine.resume(caller, id, {});
      case 'snapshot':
        return engine.snapshot(caller, id, n === 0 ? { name: 'kept' } : {});
      case 'lifetime':
        return engine.setLifetime(this.#org, id, n === 0 ? null : n * 60);
      case 'kill':
        return engine.kill(caller, id).then(({ sandbox }) => {
          // A lost or failed sandbox keeps its state.
          this.#expected.get(id).killed = sandbox.state === 'killed';
        });
      case 'fork':
        return engine.fork(caller, id, { count: 1 + (n % 2) }).then(({ forks }) => {
          for (const one of forks) {
            if (!('sandbox' in one) || this.#known.length >= 6) continue;
            this.#known.push(one.sandbox.id);
            // The files of the fork depend on when its source was frozen.
            this.#expected.add(one.sandbox.id, {
              files: null,
              counter: null,
              mayLoseFiles: true,
              killed: false,
            });
          }
        });
      case 'rollback':
        return this.#rollback(engine, id, n);
      case 'job':
        return this.#startJob(engine, id);
    }
  }

  /** Records a background process. The sandbox may have left this generation by the time it is recorded. */
  async #startJob(engine: Server['engine'], id: SandboxId): Promise<void> {
    const { generation } = await engine.get(this.#org, id);
    const about = { sandboxId: id, generation, pid: 1, command: 'work', cwd: null };
    await engine.trackProcess(this.#org, { ...about, id: randomIds.next('job') });
  }

  /** The contents depend on whether the rollback succeeds, so they are read again afterwards. */
  async #rollback(engine: Server['engine'], id: SandboxId, n: number): Promise<void> {
    const expected = this.#expected.get(id);
    const { items } = await engine.checkpoints(this.#org, id, 5);
    const target = items[n % Math.max(1, items.length)];
    if (target === undefined) return;
    expected.files = null;
    expected.counter = null;
    await engine.rollback({ org: this.#org }, id, { checkpointId: target.id });
  }

  /** Waits until every request has its answer, except requests whose server crashed. */
  async #settle(): Promise<void> {
    await this.#world.until(() => {
      this.#pending = this.#pending.filter(
        ({ server, outcome }) => !outcome.done && !server.crashSwitch.crashed,
      );
      return this.#pending.length === 0;
    });
    if (this.#unexpected !== undefined) throw this.#unexpected;
    await this.#checkContents();
  }

  /** Invariants that hold at every moment, also during operations. */
  async #checkRows(): Promise<void> {
    const bad = await this.#world.db.query(
      `SELECT s.id, s.state FROM sandboxes s LEFT JOIN checkpoints c ON c.id = s.checkpoint_id
       WHERE s.state = 'paused' AND (c.id IS NULL OR c.state <> 'sealed' OR c.sandbox_id <> s.id)`,
    );
    if (bad.length > 0) throw new Error(`Paused without a sealed checkpoint: ${JSON.stringify(bad)}`);
    const untrue = await this.#world.db.query(
      `SELECT j.id, j.state, s.state AS sandbox FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
       WHERE (j.state = 'running' AND s.state NOT IN ('running', 'pausing', 'killing'))
          OR (j.state = 'suspended' AND s.state NOT IN ('paused', 'resuming', 'killing'))
          OR (j.kind = 'service' AND j.state <> 'running' AND s.state = 'running')`,
    );
    if (untrue.length > 0) throw new Error(`Jobs do not follow their sandbox: ${JSON.stringify(untrue)}`);
    const [ledger] = await this.#world.db.query<{ position: number; count: number; last: number }>(
      `SELECT h.position, COUNT(e.id) AS count, COALESCE(MAX(e.position), 0) AS last
       FROM ledger_head h LEFT JOIN events e ON 1 = 1 GROUP BY h.position`,
    );
    if (ledger === undefined || Number(ledger.count) !== ledger.position || ledger.last !== ledger.position) {
      throw new Error(`The ledger has gaps: ${JSON.stringify(ledger)}`);
    }
  }

  /** A sandbox without an operation has the files that its programs wrote, unless a step of the history lost them. */
  async #checkContents(): Promise<void> {
    const server = this.#world.servers.find((one) => one !== null && !one.crashSwitch.crashed);
    if (!server) return;
    for (const id of this.#known) {
      const sandbox = await this.#read(id);
      if (sandbox === undefined || sandbox.busy) continue;
      const expected = this.#expected.get(id);
      if (expected.killed && sandbox.state !== 'killed')
        throw new Error(`${id} was killed and is ${sandbox.state}.`);
      if (sandbox.state === 'lost' && !expected.mayLoseFiles) throw new Error(`${id} is lost without cause.`);
      if (sandbox.state === 'paused') await this.#checkPaused(id);
      const held = await this.#contents(id, sandbox);
      if (held === undefined) continue;
      const lost = await this.#lostMeanwhile(id, expected);
      if (lost.has('files')) {
        if (!expected.mayLoseFiles) throw new Error(`${id} lost files without cause.`);
        expected.files = null;
        // The sandbox returned to an earlier checkpoint, with its processes.
        expected.counter = null;
      }
      if (lost.has('processes')) expected.counter = null;
      for (const path of expected.unpromised) {
        const text = held.files[path];
        if (text !== undefined) expected.files?.set(path, text);
      }
      expected.unpromised.clear();
      if (expected.files === null) expected.files = new Map(Object.entries(held.files));
      else if (!isDeepStrictEqual(Object.fromEntries(expected.files), held.files)) {
        if (!expected.mayLoseFiles) {
          const wrote = JSON.stringify(Object.fromEntries(expected.files));
          throw new Error(
            `${id} (${sandbox.state}) holds ${JSON.stringify(held.files)}, its programs wrote ${wrote}.`,
          );
        }
        expected.files = new Map(Object.entries(held.files));
      }
      const exact = held.counter !== null && expected.counter !== null;
      if (exact && held.counter !== expected.counter) {
        throw new Error(
          `${id} (${sandbox.state}) counts ${held.counter} in memory, not ${expected.counter}.`,
        );
      }
      expected.counter = held.counter;
    }
  }

  /**
   * After the commit of a pause the sealed instance must not continue, because it would write into sealed files. (What a
   * failed resume left behind has its own files; the reconciler removes it.)
   */
  async #checkPaused(id: SandboxId): Promise<void> {
    const [sealed] = await this.#world.db.query<{ generation: number }>(
      `SELECT generation FROM events WHERE sandbox_id = $1 AND type IN ('sandbox.paused', 'sandbox.recovered')
       ORDER BY seq DESC LIMIT 1`,
      [id],
    );
    const generation = sealed?.generation ?? 0;
    const found = await this.#world.runtime.observe({ sandboxId: id, generation });
    if (found.is === 'running') throw new Error(`${id} is paused, but the sealed instance still runs.`);
  }

  async #read(id: SandboxId) {
    const [row] = await this.#world.db.query<SandboxRow>(
      `SELECT state, generation, checkpoint_id,
         (SELECT COUNT(*) FROM operations o WHERE o.sandbox_id = s.id AND o.ended_at IS NULL) AS busy
       FROM sandboxes s WHERE id = $1`,
      [id],
    );
    return row === undefined ? undefined : { ...row, busy: Number(row.busy) > 0 };
  }

  /** What all starts since the last check reported as lost. The row has only the last report. */
  async #lostMeanwhile(id: SandboxId, expected: ExpectedState): Promise<ReadonlySet<string>> {
    const events = await this.#world.db.query<{ seq: number; type: string; data: string }>(
      'SELECT seq, type, data FROM events WHERE sandbox_id = $1 AND seq > $2 ORDER BY seq',
      [id, expected.seen],
    );
    expected.seen = events.at(-1)?.seq ?? expected.seen;
    const said = events.filter(({ type }) => REPORTS_LOSSES.has(type));
    return new Set(said.flatMap(({ data }) => (JSON.parse(data) as { lost: string[] }).lost));
  }

  /** The contents of a running instance, or of the checkpoint of a paused sandbox. Undefined when neither can be read. */
  async #contents(id: SandboxId, sandbox: Pick<SandboxRow, 'state' | 'generation' | 'checkpoint_id'>) {
    const { runtime, store } = this.#world;
    if (sandbox.state === 'running') {
      const found = await runtime.observe({ sandboxId: id, generation: sandbox.generation });
      const look = runtime.look(id);
      if (found.is !== 'gone' && look !== undefined) return look;
      return undefined;
    }
    if (sandbox.state !== 'paused' || sandbox.checkpoint_id === null) return undefined;
    const checkpoint = sandbox.checkpoint_id;
    try {
      const parts = { files: true, memory: true };
      return await runtime.contents({ id: checkpoint, parts, needs: {}, path: store.path(checkpoint) });
    } catch (thrown) {
      // A step of the history damaged the checkpoint. Without such a step this is a real loss.
      if (this.#expected.get(id).mayLoseFiles) return undefined;
      throw thrown;
    }
  }

  /** Ends all faults, restarts every server, and runs the reconcilers twice. */
  async #recover(): Promise<void> {
    this.#world.clearFaults();
    for (const server of this.#world.servers) server?.crashSwitch.crashAfter(Number.POSITIVE_INFINITY);
    for (let round = 0; round < 2; round++) {
      for (const [n] of this.#world.servers.entries()) {
        // Crashed servers count as alive until their lease expires.
        this.#world.clock.advance(200_000);
        const server = await this.#world.server(n);
        for (const one of this.#world.servers)
          if (one && !one.crashSwitch.crashed) await one.engine.heartbeat();
        this.#track(server, server.engine.reconcile());
        await this.#settle();
      }
    }
  }

  async #checkRecovered(): Promise<void> {
    const { db, runtime } = this.#world;
    const open = await db.query('SELECT id, kind, sandbox_id FROM operations WHERE ended_at IS NULL');
    if (open.length > 0) throw new Error(`Operations are open: ${JSON.stringify(open)}`);
    const passing = await db.query(
      "SELECT id, state FROM sandboxes WHERE state IN ('creating', 'pausing', 'resuming', 'killing')",
    );
    if (passing.length > 0) throw new Error(`Sandboxes are stuck: ${JSON.stringify(passing)}`);
    for await (const { sandboxId, generation } of runtime.list()) {
      const sandbox = await this.#read(sandboxId);
      const found = await runtime.observe({ sandboxId, generation });
      const owned =
        sandbox?.state === 'running' && sandbox.generation === generation && found.is === 'running';
      if (!owned)
        throw new Error(`Generation ${generation} of ${sandboxId} (${sandbox?.state}) is ${found.is}.`);
    }
    const server = await this.#world.server(0);
    for await (const { sandboxId, what } of server.engine.audit()) throw new Error(`${sandboxId}: ${what}`);
  }

  /** Kills all sandboxes and deletes their checkpoints. Then only the template may be left. */
  async #leaveNothing(): Promise<void> {
    const { db, runtime, store } = this.#world;
    const server = await this.#world.server(0);
    const rows = await db.query<{ id: SandboxId }>('SELECT id FROM sandboxes WHERE org = $1', [this.#org]);
    for (const { id } of rows) this.#track(server, server.engine.kill({ org: this.#org }, id));
    await this.#settle();
    const kept = await db.query<{ id: CheckpointId }>(
      `SELECT id FROM checkpoints WHERE org = $1 AND state = 'sealed'
         AND (kept = 1 OR id IN (SELECT checkpoint_id FROM checkpoint_names))`,
      [this.#org],
    );
    for (const { id } of kept) this.#track(server, server.engine.deleteCheckpoint(this.#org, id));
    await this.#settle();
    this.#track(server, server.engine.reconcile());
    await this.#settle();
    for await (const instance of runtime.list()) throw new Error(`${JSON.stringify(instance)} is left.`);
    const left = [];
    for await (const stored of store.list()) left.push(stored);
    if (left.length !== 1) throw new Error(`The store keeps ${JSON.stringify(left)}.`);
    const alive = await db.query("SELECT id, state FROM jobs WHERE state IN ('running', 'suspended')");
    if (alive.length > 0) throw new Error(`Jobs outlive their sandboxes: ${JSON.stringify(alive)}`);
    const captured = await db.query('SELECT job_id, checkpoint_id FROM checkpoint_jobs');
    if (captured.length > 0) throw new Error(`Deleted checkpoints hold jobs: ${JSON.stringify(captured)}`);
    const undecided = await db.query(
      "SELECT id, state FROM checkpoints WHERE state = 'writing' OR (state = 'deleted' AND removed_at IS NULL)",
    );
    if (undecided.length > 0)
      throw new Error(`Checkpoints are neither sealed nor removed: ${JSON.stringify(undecided)}`);
  }
}
