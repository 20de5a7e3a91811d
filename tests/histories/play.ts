/** Plays a history and checks after every step that what must hold holds. */
import { isDeepStrictEqual } from 'node:util';
import { randomIds } from '@torpor/engine';
import type { CheckpointId, SandboxId, SandboxView } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import type { Step, Verb } from './steps.ts';
import { type Truth, Truths } from './truth.ts';
import type { HistoryWorld, Server } from './world.ts';

let histories = 0;

const SAYS_WHAT_IS_LOST = new Set(['sandbox.started', 'sandbox.resumed', 'sandbox.recovered']);

type SandboxRow = {
  state: SandboxView['state'];
  generation: number;
  checkpoint_id: CheckpointId | null;
  busy: number;
};

export class Player {
  readonly #world: HistoryWorld;
  readonly #org: string;
  readonly #truths = new Truths();
  readonly #known: SandboxId[] = [];
  readonly #keys = new Map<number, SandboxId>();
  /** The first answer that nobody should get. */
  #wrong: unknown;
  #lied = false;
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
    await this.#heal();
    await this.#checkHealed();
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
        return this.#withSandbox(step.of, (id, truth) => {
          world.runtime.vanish(id, step.forget);
          truth.counter = null;
          if (step.forget) truth.mayLoseFiles = true;
        });
      case 'damage':
        return this.#damage(step.of, step.how, step.memoryOnly);
      case 'fault':
        this.#lied ||= step.fault === 'lie';
        return world.order(step.call, step.fault);
      case 'upgrade':
        // Memory images of before cannot be used after it; files can.
        world.runtime.build = `build-${Math.random()}`;
        for (const id of this.#known) this.#truths.get(id).counter = null;
        return;
      case 'crash':
        return (await world.server(step.server)).wire.cutAfter(step.halfCalls);
      case 'restart':
        (await world.server(step.server)).wire.cut();
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

  #withSandbox(of: number, work: (id: SandboxId, truth: Truth) => void): void {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    if (id !== undefined) work(id, this.#truths.get(id));
  }

  async #work(of: number, text: string): Promise<void> {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    if (id === undefined) return;
    const truth = this.#truths.get(id);
    const sandbox = await this.#read(id);
    const path = `/home/${text}`;
    if (!this.#world.runtime.work(id, path, text)) return;
    if (sandbox?.state === 'running' || sandbox?.state === 'pausing') {
      truth.files?.set(path, text);
      if (truth.counter !== null) truth.counter++;
    } else {
      // Nobody was told that it runs: such a start may be taken back, and what it wrote with it.
      truth.unpromised.add(path);
      truth.counter = null;
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
      // Processes may be lost, and must be said to be; files never are for it.
      const { memoryEntries } = this.#world.runtime;
      for (const entry of memoryEntries) this.#world.store.damage(row.checkpoint_id, how, entry);
      for (const other of this.#known) this.#truths.get(other).counter = null;
      return;
    }
    this.#world.store.damage(row.checkpoint_id, how);
    // Forks stand on the same checkpoint.
    for (const other of this.#known) this.#truths.get(other).mayLoseFiles = true;
  }

  /** Follows a request without waiting for it: the next step may come while it is under way. */
  #track(server: Server, request: Promise<unknown>): void {
    request.catch((thrown: unknown) => {
      const typed = thrown instanceof TorporError && thrown.code !== 'internal';
      // A runtime that lies may make the engine do what makes no sense to it; nothing else may.
      if (!typed && !(this.#lied && thrown instanceof TorporError)) this.#wrong ??= thrown;
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
        this.#truths.born(id, null);
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
          // One that was lost or never ran stays that.
          this.#truths.get(id).killed = sandbox.state === 'killed';
        });
      case 'fork':
        return engine.fork(caller, id, { count: 1 + (n % 2) }).then(({ forks }) => {
          for (const one of forks) {
            if (!('sandbox' in one) || this.#known.length >= 6) continue;
            this.#known.push(one.sandbox.id);
            // What it has in common with its source depends on when the source was frozen.
            this.#truths.born(one.sandbox.id, {
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

  /** A process in the background, which the sandbox may have moved on from by the time it is written down. */
  async #startJob(engine: Server['engine'], id: SandboxId): Promise<void> {
    const { generation } = await engine.get(this.#org, id);
    const about = { sandboxId: id, generation, pid: 1, command: 'work', cwd: null };
    await engine.trackProcess(this.#org, { ...about, id: randomIds.next('job') });
  }

  /** From here on what the sandbox holds depends on whether it came to pass, so it is read afresh afterwards. */
  async #rollback(engine: Server['engine'], id: SandboxId, n: number): Promise<void> {
    const truth = this.#truths.get(id);
    const { items } = await engine.checkpoints(this.#org, id, 5);
    const target = items[n % Math.max(1, items.length)];
    if (target === undefined) return;
    truth.files = null;
    truth.counter = null;
    await engine.rollback({ org: this.#org }, id, { checkpointId: target.id });
  }

  /** Every request has its answer, except those whose server died. */
  async #settle(): Promise<void> {
    await this.#world.until(() => {
      this.#pending = this.#pending.filter(({ server, outcome }) => !outcome.done && !server.wire.dead);
      return this.#pending.length === 0;
    });
    if (this.#wrong !== undefined) throw this.#wrong;
    await this.#checkContents();
  }

  /** What holds at every moment, however much is under way. */
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

  /** What a quiet sandbox holds is what its programs wrote, unless an accident that we caused took it. */
  async #checkContents(): Promise<void> {
    const server = this.#world.servers.find((one) => one !== null && !one.wire.dead);
    if (!server) return;
    for (const id of this.#known) {
      const sandbox = await this.#read(id);
      if (sandbox === undefined || sandbox.busy) continue;
      const truth = this.#truths.get(id);
      if (truth.killed && sandbox.state !== 'killed')
        throw new Error(`${id} was killed and is ${sandbox.state}.`);
      if (sandbox.state === 'lost' && !truth.mayLoseFiles) throw new Error(`${id} is lost without cause.`);
      if (sandbox.state === 'paused') await this.#checkAsleep(id);
      const held = await this.#holds(id, sandbox);
      if (held === undefined) continue;
      const lost = await this.#lostMeanwhile(id, truth);
      if (lost.has('files')) {
        if (!truth.mayLoseFiles) throw new Error(`${id} lost files without cause.`);
        truth.files = null;
        // It went back to an earlier moment, and its processes with it.
        truth.counter = null;
      }
      if (lost.has('processes')) truth.counter = null;
      for (const path of truth.unpromised) {
        const text = held.files[path];
        if (text !== undefined) truth.files?.set(path, text);
      }
      truth.unpromised.clear();
      if (truth.files === null) truth.files = new Map(Object.entries(held.files));
      else if (!isDeepStrictEqual(Object.fromEntries(truth.files), held.files)) {
        if (!truth.mayLoseFiles) {
          const wrote = JSON.stringify(Object.fromEntries(truth.files));
          throw new Error(
            `${id} (${sandbox.state}) holds ${JSON.stringify(held.files)}, its programs wrote ${wrote}.`,
          );
        }
        truth.files = new Map(Object.entries(held.files));
      }
      const exact = held.counter !== null && truth.counter !== null;
      if (exact && held.counter !== truth.counter) {
        throw new Error(`${id} (${sandbox.state}) counts ${held.counter} in memory, not ${truth.counter}.`);
      }
      truth.counter = held.counter;
    }
  }

  /**
   * After the commit of a pause nothing of the run that was sealed may go on: it would write into what is sealed.
   * (What a failed resume could not clear away has ground of its own, and is the reconciler's to find.)
   */
  async #checkAsleep(id: SandboxId): Promise<void> {
    const [sealed] = await this.#world.db.query<{ generation: number }>(
      `SELECT generation FROM events WHERE sandbox_id = $1 AND type IN ('sandbox.paused', 'sandbox.recovered')
       ORDER BY seq DESC LIMIT 1`,
      [id],
    );
    const generation = sealed?.generation ?? 0;
    const found = await this.#world.runtime.observe({ sandboxId: id, generation });
    if (found.is === 'running') throw new Error(`${id} is paused, and the run that was sealed goes on.`);
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

  /** What every start said was lost since the last look; the row has only what the last one said. */
  async #lostMeanwhile(id: SandboxId, truth: Truth): Promise<ReadonlySet<string>> {
    const events = await this.#world.db.query<{ seq: number; type: string; data: string }>(
      'SELECT seq, type, data FROM events WHERE sandbox_id = $1 AND seq > $2 ORDER BY seq',
      [id, truth.seen],
    );
    truth.seen = events.at(-1)?.seq ?? truth.seen;
    const said = events.filter(({ type }) => SAYS_WHAT_IS_LOST.has(type));
    return new Set(said.flatMap(({ data }) => (JSON.parse(data) as { lost: string[] }).lost));
  }

  /** The contents of the running instance, or of the checkpoint of a paused one; undefined when neither can be read. */
  async #holds(id: SandboxId, sandbox: Pick<SandboxRow, 'state' | 'generation' | 'checkpoint_id'>) {
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
      // It was damaged by a step of the history; otherwise this is the worst that can happen.
      if (this.#truths.get(id).mayLoseFiles) return undefined;
      throw thrown;
    }
  }

  /** The faults are over, every server is back, and the reconcilers have had two rounds. */
  async #heal(): Promise<void> {
    this.#world.clearOrders();
    for (const server of this.#world.servers) server?.wire.cutAfter(Number.POSITIVE_INFINITY);
    for (let round = 0; round < 2; round++) {
      for (const [n] of this.#world.servers.entries()) {
        // Servers that died are believed alive until their lease is over.
        this.#world.clock.advance(200_000);
        const server = await this.#world.server(n);
        for (const one of this.#world.servers) if (one && !one.wire.dead) await one.engine.heartbeat();
        this.#track(server, server.engine.reconcile());
        await this.#settle();
      }
    }
  }

  async #checkHealed(): Promise<void> {
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

  /** Everything is killed and its checkpoints given up; then nothing but the template may be left. */
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
      throw new Error(`Checkpoints are neither here nor gone: ${JSON.stringify(undecided)}`);
  }
}
