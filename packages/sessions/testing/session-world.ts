/**
 * Sessions on a real engine and database, with sandboxes that are maps in memory. The program inside is an echo;
 * its agent writes each turn into a file of the sandbox before the program gets it, so that what happens to the
 * files happens to the record too.
 */
import { randomIds } from '@torpor/engine';
import {
  type DatabaseKind,
  databaseKinds,
  MemoryRuntime,
  makeWorld,
  type World,
  type WorldOptions,
} from '@torpor/engine/testing';
import {
  type SandboxId,
  type SessionId,
  type SessionSpec,
  TorporError,
  type TurnId,
  type TurnReply,
} from '@torpor/protocol';
import { Sessions, type SessionsParts } from '../src/sessions.ts';
import { DEFAULT_SESSION_SETTINGS } from '../src/settings.ts';
import type { DeliveryReceipt, ProgramOutput, TurnMessage, TurnPort } from '../src/turn-port.ts';

/** TORPOR_DATABASES=all runs everything on PostgreSQL too; without, one whole life of a session does. */
export const testedDatabases: readonly DatabaseKind[] =
  process.env['TORPOR_DATABASES'] === 'all' ? databaseKinds : ['sqlite'];

export const ORG = 'org';
export const caller = { org: ORG };

export const SPEC: SessionSpec = { program: { command: 'echo', mode: 'turn' }, sandbox: {} };

interface Written {
  readonly sandboxId: SandboxId;
  readonly order: TurnMessage;
}

class EchoInside implements TurnPort {
  /** Every turn that a program got, in order: its stdin log. */
  readonly stdin: Written[] = [];
  /** What goes wrong; asked before and after the effect. */
  fault: (when: 'before' | 'recorded' | 'after' | 'listen', turn: TurnId) => void | Promise<void> = () => {};
  /** What the program says to a turn. */
  says: (order: TurnMessage) => readonly ProgramOutput[] = (order) => [
    output(0, `echo ${order.input}\n`),
    { is: 'end', exitCode: 0, signal: null },
  ];
  readonly #runtimes: readonly MemoryRuntime[];

  constructor(runtimes: readonly MemoryRuntime[]) {
    this.#runtimes = runtimes;
  }

  async deliver(_: string, sandboxId: SandboxId, order: TurnMessage): Promise<DeliveryReceipt> {
    await this.fault('before', order.id);
    const path = `/turns/${order.id}`;
    const runtime = this.#runtimes.find((one) => one.look(sandboxId) !== undefined);
    const record = runtime?.look(sandboxId)?.files[path];
    if (record === 'recorded') return { is: 'unknown', why: 'it was interrupted' };
    if (record === undefined) {
      if (runtime?.work(sandboxId, path, 'recorded') !== true) throw unreachable();
      await this.fault('recorded', order.id);
      this.stdin.push({ sandboxId, order });
      runtime.work(sandboxId, path, 'written');
    }
    await this.fault('after', order.id);
    return { is: 'written', tag: order.id, offset: 0 };
  }

  async *listen(_: string, sandboxId: SandboxId, tag: string, from: number): AsyncGenerator<ProgramOutput> {
    await this.fault('listen', tag as TurnId);
    const written = this.stdin.find(({ order }) => order.id === tag);
    if (written?.sandboxId !== sandboxId) throw new TorporError('not_found', 'There is no such process.');
    for (const said of this.says(written.order)) {
      if (said.is === 'end' || said.position >= from) yield said;
    }
  }
}

export function output(position: number, text: string): ProgramOutput {
  return { is: 'output', channel: 'stdout', position, bytes: Buffer.from(text) };
}

export function unreachable(): TorporError {
  return new TorporError('unreachable', 'The provider is away.');
}

export interface SessionWorld {
  readonly world: World;
  readonly inside: EchoInside;
  readonly sessions: Sessions;
  /** Another server's, or those of this one after a restart. */
  another(parts?: Partial<SessionsParts>): Promise<Sessions>;
  dispose(): Promise<void>;
}

export async function sessionWorld(kind: DatabaseKind, options: WorldOptions = {}): Promise<SessionWorld> {
  const others: MemoryRuntime[] = [];
  const world = await makeWorld(kind, {
    ...options,
    runtimes: (parts) => {
      const made = options.runtimes?.(parts) ?? [];
      others.push(...made.filter((runtime) => runtime instanceof MemoryRuntime));
      return made;
    },
  });
  const inside = new EchoInside([world.runtime, ...others]);
  const opened: Sessions[] = [];
  const another = async (more: Partial<SessionsParts> = {}) => {
    const sessions = new Sessions({
      engine: world.engine,
      db: world.db,
      clock: world.clock,
      ids: randomIds,
      turnPort: inside,
      settings: DEFAULT_SESSION_SETTINGS,
      report: (what, facts) => world.reported.push({ what, facts }),
      atFaultPoint: () => {},
      ...more,
    });
    await sessions.start({ rounds: false });
    opened.push(sessions);
    return sessions;
  };
  const sessions = await another();
  return {
    world,
    inside,
    sessions,
    another,
    dispose: async () => {
      await Promise.all(opened.map((one) => one.stop()));
      await world.dispose();
    },
  };
}

/** Sends a turn and waits until it has ended. */
export async function answered(sessions: Sessions, id: SessionId, input: string): Promise<TurnReply> {
  const turn = await sessions.send(caller, id, input);
  for await (const _ of sessions.follow(ORG, id, turn.id, -1, new AbortController().signal)) void _;
  return sessions.turn(ORG, id, turn.id);
}

/** How many sandboxes were ever made. */
export async function sandboxesMade({ db }: World): Promise<number> {
  const [row] = await db.query<{ count: number }>('SELECT COUNT(*) AS count FROM sandboxes');
  return Number(row?.count);
}
