/**
 * Plays a history of several nodes. After every step: no sandbox runs on two machines, what is paused has a sealed checkpoint, the
 * ledger has no gaps. In the end all machines are back: every operation has ended, every sandbox wakes, nothing that was replicated
 * is lost, and whatever else is lost was said.
 */
import { type CheckpointId, type SandboxId, type SandboxView, TorporError } from '@torpor/protocol';
import type { NodeStep, NodeVerb } from './node-steps.ts';
import type { Machine, NodeServer, NodeWorld } from './node-world.ts';

let histories = 0;
/** The program of a sandbox writes a growing number into this file. */
const PATH = '/number';
/** How many rounds of recovery a history may need. */
const MOST_ROUNDS = 3;

interface Expected {
  /** The last number that the sandbox wrote while it was known to run, and the last event before that. */
  written: number;
  writtenAfter: number;
  killed: boolean;
}

interface Row {
  readonly id: SandboxId;
  readonly org: string;
  readonly state: SandboxView['state'];
  readonly node: string;
  readonly generation: number;
  readonly seq: number;
  readonly evidence: string;
  readonly busy: boolean;
}

interface Request {
  /**
   * The server that works on the request, and that is gone with it when it crashes. A server that has passed a request on may
   * crash: the work goes on.
   */
  readonly by: { server: NodeServer };
  readonly outcome: { readonly done: boolean };
}

export class NodePlayer {
  readonly #world: NodeWorld;
  readonly #org: string;
  readonly #known: SandboxId[] = [];
  readonly #expected = new Map<SandboxId, Expected>();
  #pending: Request[] = [];
  #unexpected: unknown;
  #number = 0;
  /** Only then may anything be lost for good. */
  #wasForgotten = false;

  constructor(world: NodeWorld) {
    this.#world = world;
    this.#org = `history-${++histories}`;
  }

  async play(steps: readonly NodeStep[]): Promise<void> {
    for (const step of steps) {
      await this.#step(step);
      await this.#checkRows();
      await this.#checkRunsOnce();
    }
    await this.#settle();
    await this.#recover();
    await this.#checkRecovered();
    await this.#checkContents();
    await this.#leaveNothing();
  }

  async #step(step: NodeStep): Promise<void> {
    const world = this.#world;
    switch (step.do) {
      case 'create':
        return this.#create(await this.#serverAt(step.node));
      case 'ask': {
        const id = this.#known[step.of % Math.max(1, this.#known.length)];
        if (id !== undefined) this.#ask(await this.#serverAt(step.node), step.verb, id);
        return;
      }
      case 'work':
        return this.#work(step.of);
      case 'crash':
        return (await this.#serverAt(step.node)).crashSwitch.crashAfter(step.halfCalls);
      case 'die': {
        const machine = world.machine(step.node);
        machine.server?.crashSwitch.crash();
        return world.endLease(machine);
      }
      case 'cut':
        return world.endLease(world.machine(step.node));
      case 'fence': {
        const by = this.#standing(step.node);
        return by === undefined ? undefined : world.fence(by);
      }
      case 'forget':
        return this.#forget(world.machine(step.node));
      case 'back':
        return this.#bringBack(world.machine(step.node));
      case 'cordon':
      case 'uncordon':
      case 'drain': {
        const { name } = world.machine(step.node);
        const server = await this.#serverAt(step.node + 1);
        const verbs = { cordon: 'cordonNode', uncordon: 'uncordonNode', drain: 'beginDrain' } as const;
        return this.#track({ server }, server.engine[verbs[step.do]](name));
      }
      case 'drain round':
        return this.#round(step.node, (server) => server.engine.drainNode());
      case 'store':
        world.machine(step.node).replicas.failure = step.isAway
          ? new TorporError('unreachable', 'The store is away.')
          : undefined;
        return;
      case 'upload':
        return this.#round(step.node, (server) => server.engine.replicate());
      case 'evict':
        return this.#round(step.node, (server) => server.engine.keepCacheBound());
      case 'reconcile':
        return this.#round(step.node, (server) => server.engine.reconcile());
      case 'sweep':
        return this.#round(step.node, (server) => server.engine.sweep());
      case 'inspect':
        return this.#round(step.node, (server) => server.engine.inspectCheckpoints());
      case 'advance':
        return world.clock.advance(step.ms);
      case 'settle':
        return this.#settle();
    }
  }

  /** A machine that has its lease, the one with the number if it has. */
  #standing(n: number): Machine | undefined {
    const { machines } = this.#world;
    const from = machines.map((_, i) => this.#world.machine(n + i));
    return from.find(({ isEnded }) => !isEnded);
  }

  /** The server that a client reaches: also one that is cut off and does not know, but none of a machine that is dead. */
  async #serverAt(n: number): Promise<NodeServer> {
    const world = this.#world;
    const wanted = world.machine(n);
    const zombie = wanted.isEnded ? world.alive(wanted) : undefined;
    return zombie ?? world.server(this.#standing(n) ?? wanted);
  }

  async #round(n: number, work: (server: NodeServer) => Promise<unknown>): Promise<void> {
    const server = await this.#serverAt(n);
    this.#track({ server }, work(server));
  }

  async #forget(machine: Machine): Promise<void> {
    if (!machine.isEnded) return;
    const by = this.#standing(0);
    if (by === undefined) return;
    this.#wasForgotten = true;
    const server = await this.#world.server(by);
    this.#track({ server }, server.engine.forgetNode(machine.name));
  }

  async #bringBack(machine: Machine): Promise<void> {
    if (machine.isEnded) machine.server?.crashSwitch.crash();
    await this.#world.server(machine);
  }

  /** Watches a request without waiting for it. */
  #track(by: Request['by'], request: Promise<unknown>): void {
    request.catch((thrown: unknown) => {
      const isTyped = thrown instanceof TorporError && thrown.code !== 'internal';
      if (!isTyped) this.#unexpected ??= thrown;
    });
    this.#pending.push({ by, outcome: this.#world.watch(request) });
  }

  #create(server: NodeServer): void {
    const request = server.engine.create({ org: this.#org }, { fallback: ['files', 'previous'] });
    this.#track(
      { server },
      request.then(({ sandbox }) => this.#add(sandbox.id)),
    );
  }

  #add(id: SandboxId): void {
    if (this.#known.includes(id) || this.#known.length >= 6) return;
    this.#known.push(id);
    this.#expected.set(id, { written: 0, writtenAfter: 0, killed: false });
  }

  /** A request goes to the node of the sandbox, through at most one hop. */
  #ask(first: NodeServer, verb: NodeVerb, id: SandboxId): void {
    const by = { server: first };
    const request = async () => {
      const location = await first.engine.nodeDirectory().locate(id);
      if (location.is !== 'elsewhere') return this.#request(first, verb, id);
      const machine = this.#world.named(location.node);
      const server = machine === undefined ? undefined : this.#world.alive(machine);
      if (server === undefined) throw new TorporError('unreachable', `${location.node} does not answer.`);
      by.server = server;
      return this.#request(server, verb, id);
    };
    this.#track(by, request());
  }

  async #request({ engine }: NodeServer, verb: NodeVerb, id: SandboxId): Promise<unknown> {
    const caller = { org: this.#org };
    switch (verb) {
      case 'pause':
        return engine.pause(caller, id, {});
      case 'replicate':
        return engine.pause({ ...caller, signal: this.#deadline() }, id, { durability: 'replicated' });
      case 'resume':
        return engine.resume(caller, id, {});
      case 'snapshot':
        return engine.snapshot(caller, id, {});
      case 'lifetime':
        return engine.setLifetime(this.#org, id, 600);
      case 'kill': {
        const { sandbox } = await engine.kill(caller, id);
        const expected = this.#expected.get(id);
        if (expected !== undefined) expected.killed ||= sandbox.state === 'killed';
        return;
      }
      case 'fork': {
        const { forks } = await engine.fork(caller, id, { count: 1 });
        for (const one of forks) if ('sandbox' in one) this.#add(one.sandbox.id);
        return;
      }
    }
  }

  /** A caller does not wait for ever, for example for a store that is away. */
  #deadline(): AbortSignal {
    const deadline = new AbortController();
    void this.#world.clock.sleep(60_000).then(() => deadline.abort());
    return deadline.signal;
  }

  async #work(of: number): Promise<void> {
    const id = this.#known[of % Math.max(1, this.#known.length)];
    const expected = id === undefined ? undefined : this.#expected.get(id);
    if (id === undefined || expected === undefined) return;
    const [machine] = await this.#world.runsOn(id);
    const row = await this.#read(id);
    const number = ++this.#number;
    if (machine === undefined || !machine.runtime.work(id, PATH, String(number))) return;
    const isKnown = row?.state === 'running' && !row.busy && row.node === machine.name;
    if (isKnown) Object.assign(expected, { written: number, writtenAfter: row.seq });
  }

  async #settle(): Promise<void> {
    await this.#world.until(() => {
      this.#pending = this.#pending.filter(
        ({ by, outcome }) => !outcome.done && !by.server.crashSwitch.crashed,
      );
      return this.#pending.length === 0;
    });
    if (this.#unexpected !== undefined) throw this.#unexpected;
  }

  async #read(id: SandboxId): Promise<Row | undefined> {
    const [row] = await this.#world.db.query<Omit<Row, 'busy'> & { busy: number }>(
      `SELECT id, org, state, node, generation, seq, evidence,
         (SELECT COUNT(*) FROM operations o WHERE o.sandbox_id = s.id AND o.ended_at IS NULL) AS busy
       FROM sandboxes s WHERE id = $1`,
      [id],
    );
    return row === undefined ? undefined : { ...row, busy: Number(row.busy) > 0 };
  }

  async #checkRows(): Promise<void> {
    const world = this.#world;
    const [found] = await world.db.query<{ position: number; last: number; added: number; bad: string }>(
      `SELECT position,
         (SELECT COALESCE(MAX(e.position), 0) FROM events e) AS last,
         (SELECT COUNT(*) FROM events e WHERE e.position > $1) AS added,
         (SELECT COALESCE(string_agg(s.id, ', '), '')
          FROM sandboxes s LEFT JOIN checkpoints c ON c.id = s.checkpoint_id
          WHERE s.state = 'paused' AND (c.id IS NULL OR c.state <> 'sealed' OR c.sandbox_id <> s.id)) AS bad
       FROM ledger_head`,
      [world.checkedPosition],
    );
    if (found === undefined) throw new Error('The ledger has no head row.');
    const { position, last, added, bad } = found;
    if (bad !== '') throw new Error(`Paused without a sealed checkpoint: ${bad}`);
    if (last !== position || world.checkedPosition + added !== position)
      throw new Error(`The ledger has gaps after ${world.checkedPosition}: ${JSON.stringify(found)}`);
    world.checkedPosition = position;
  }

  async #checkRunsOnce(): Promise<void> {
    for (const id of this.#known) {
      const machines = await this.#world.runsOn(id);
      if (machines.length <= 1) continue;
      throw new Error(`${id} runs on ${machines.map(({ name }) => name).join(' and ')}.`);
    }
  }

  /** Ends all faults, starts every machine again, and runs all rounds until one of them finds nothing to do. */
  async #recover(): Promise<void> {
    const world = this.#world;
    for (const machine of world.machines) {
      machine.replicas.failure = undefined;
      machine.server?.crashSwitch.crashAfter(Number.POSITIVE_INFINITY);
    }
    let before = await this.#remains();
    for (let round = 0; round < MOST_ROUNDS; round++) {
      for (const machine of world.machines) await this.#recoverMachine(machine);
      const after = await this.#remains();
      if (after.open === 0 && after.state === before.state) return;
      before = after;
    }
  }

  async #recoverMachine(machine: Machine): Promise<void> {
    const world = this.#world;
    // What a server that crashed had under way is taken over when its own lease has ended.
    world.clock.advance(200_000);
    await this.#bringBack(machine);
    const { engine } = await world.server(machine);
    await world.run(engine.uncordonNode(machine.name));
    await world.run(engine.heartbeat());
    await world.run(engine.reconcile());
    await world.run(engine.replicate());
    await this.#settle();
    // The database may be slow: a server may be on its way with work that it has accepted before a crash of another one.
    await world.idle();
  }

  /** How much is left to do, and all that a round of recovery may change. */
  async #remains(): Promise<{ open: number; state: string }> {
    const { db, machines } = this.#world;
    const [row] = await db.query<{ open: number }>(
      `SELECT position,
         (SELECT COUNT(*) FROM operations WHERE ended_at IS NULL)
           + (SELECT COUNT(*) FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL) AS open,
         (SELECT COUNT(removed_at) FROM checkpoints) AS removed,
         (SELECT COUNT(replicated_at) FROM checkpoints) AS replicated,
         (SELECT COUNT(*) FROM fenced_runs) AS fenced,
         (SELECT COUNT(*) FROM stored_objects) AS objects,
         (SELECT string_agg(CONCAT_WS(' ', name, epoch, cordoned, draining, forgotten, lease_until > {now}), ', ' ORDER BY name)
          FROM nodes) AS nodes
       FROM ledger_head`,
    );
    const instances: string[] = [];
    for (const { name, runtime } of machines) {
      for await (const { sandboxId, generation } of runtime.list())
        instances.push(`${sandboxId} ${generation} on ${name}`);
    }
    return { open: row?.open ?? 0, state: JSON.stringify([row, instances]) };
  }

  async #checkRecovered(): Promise<void> {
    const { db, machines } = this.#world;
    const none = async (what: string, sql: string) => {
      const rows = await db.query(sql);
      if (rows.length > 0) throw new Error(`${what}: ${JSON.stringify(rows)}`);
    };
    await none('Operations are open', 'SELECT id, kind, sandbox_id FROM operations WHERE ended_at IS NULL');
    await none(
      'Sandboxes are stuck',
      "SELECT id, state, node FROM sandboxes WHERE state IN ('creating', 'pausing', 'resuming', 'killing')",
    );
    await none(
      'Sandboxes are unknown though their nodes are back',
      "SELECT id, state, node, reason FROM sandboxes WHERE evidence = 'unknown' AND state = 'running'",
    );
    await none('Runs of before a fence are not kept', 'SELECT * FROM fenced_runs');
    for (const machine of machines) {
      for await (const { sandboxId, generation } of machine.runtime.list()) {
        const row = await this.#read(sandboxId);
        const found = await machine.runtime.observe({ sandboxId, generation });
        const isOwned =
          row?.state === 'running' &&
          row.node === machine.name &&
          row.generation === generation &&
          found.is === 'running';
        if (!isOwned)
          throw new Error(`${sandboxId} (${row?.state} on ${row?.node}) is ${found.is} on ${machine.name}.`);
      }
    }
  }

  /** Every sandbox wakes, with all that was replicated. */
  async #checkContents(): Promise<void> {
    for (const id of this.#known) {
      const row = await this.#read(id);
      const expected = this.#expected.get(id);
      if (row === undefined || expected === undefined) throw new Error(`${id} is forgotten.`);
      if (expected.killed && row.state !== 'killed') throw new Error(`${id} was killed and is ${row.state}.`);
      if (row.state === 'killed') continue;
      if (row.state === 'lost') {
        if (!this.#wasForgotten) throw new Error(`${id} is lost, and no node was forgotten.`);
        continue;
      }
      const floor = await this.#replicated(id);
      const server = await this.#world.server(this.#world.machine(0));
      this.#ask(server, 'resume', id);
      await this.#settle();
      const [machine, another] = await this.#world.runsOn(id);
      if (machine === undefined || another !== undefined) {
        const now = await this.#read(id);
        throw new Error(
          `${id} was ${row.state} on ${row.node}, does not wake, and is ${JSON.stringify(now)}.`,
        );
      }
      const number = Number(machine.runtime.look(id)?.files[PATH] ?? 0);
      if (number < floor) throw new Error(`${id} has ${number}, and ${floor} was replicated.`);
      if (number < expected.written && !(await this.#isSaid(id, expected.writtenAfter)))
        throw new Error(`${id} has ${number}, wrote ${expected.written}, and no event says so.`);
    }
  }

  /**
   * The number in the newest replicated checkpoint of the sandbox. A sandbox that is given up goes back to what is replicated then:
   * checkpoints that its machine has replicated only after it came back do not count.
   */
  async #replicated(id: SandboxId): Promise<number> {
    const [newest] = await this.#world.db.query<{ id: CheckpointId }>(
      `SELECT c.id FROM checkpoints c
       WHERE c.sandbox_id = $1 AND c.state = 'sealed' AND c.replicated_at IS NOT NULL AND c.recovered = 0
         AND NOT EXISTS (
           SELECT 1 FROM events given_up, events replicated
           WHERE given_up.sandbox_id = c.sandbox_id AND given_up.type = 'sandbox.recovered' AND given_up.seq > c.seq
             AND replicated.sandbox_id = c.sandbox_id AND replicated.type = 'checkpoint.replicated'
             AND replicated.data LIKE '%"' || c.id || '"%' AND replicated.seq > given_up.seq
         )
       ORDER BY c.seq DESC LIMIT 1`,
      [id],
    );
    const copy = newest === undefined ? undefined : this.#world.bucket.copies.get(newest.id);
    const image = copy?.sealed.get('image.json');
    const files = image === undefined ? {} : Object.fromEntries(JSON.parse(image) as [string, string][]);
    return Number(files[PATH] ?? 0);
  }

  async #isSaid(id: SandboxId, after: number): Promise<boolean> {
    const events = await this.#world.db.query<{ data: string }>(
      'SELECT data FROM events WHERE sandbox_id = $1 AND seq > $2',
      [id, after],
    );
    return events.some(({ data }) => (JSON.parse(data) as { lost?: string[] }).lost?.includes('files'));
  }

  async #leaveNothing(): Promise<void> {
    const { db, machines } = this.#world;
    const rows = await db.query<{ id: SandboxId }>('SELECT id FROM sandboxes WHERE org = $1', [this.#org]);
    const server = await this.#world.server(this.#world.machine(0));
    for (const { id } of rows) this.#ask(server, 'kill', id);
    await this.#settle();
    for (const machine of machines) {
      const { engine } = await this.#world.server(machine);
      await this.#world.run(engine.reconcile());
      for await (const instance of machine.runtime.list())
        throw new Error(`${JSON.stringify(instance)} is left on ${machine.name}.`);
    }
    const alive = await db.query(
      "SELECT id, state, node FROM sandboxes WHERE org = $1 AND state NOT IN ('killed', 'failed', 'lost')",
      [this.#org],
    );
    if (alive.length > 0) throw new Error(`Sandboxes are alive: ${JSON.stringify(alive)}`);
  }
}
