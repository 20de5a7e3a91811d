/**
 * Sessions on a real engine and database, with sandboxes that are maps in memory. The program echoes its input. Its agent
 * writes each turn into a file of the sandbox before the program gets the turn, so that a loss of files loses the record
 * too.
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

/** TORPOR_DATABASES=all runs all tests on PostgreSQL too; by default only life.test.ts does. */
export const testedDatabases: readonly DatabaseKind[] =
  process.env['TORPOR_DATABASES'] === 'all' ? databaseKinds : ['sqlite'];

export const ORG = 'org';
export const caller = { org: ORG };

export const SPEC: SessionSpec = { program: { command: 'echo', mode: 'turn' }, sandbox: {} };

interface Written {
  readonly sandboxId: SandboxId;
  readonly message: TurnMessage;
}

class EchoProgram implements TurnPort {
  /** Every turn that a program got, in order. */
  readonly stdin: Written[] = [];
  /** Throws to simulate a fault; called before and after each effect. */
  fault: (when: 'before' | 'recorded' | 'after' | 'listen', turn: TurnId) => void | Promise<void> = () => {};
  /** The output of the program for a turn. */
  answer: (message: TurnMessage) => readonly ProgramOutput[] = (message) => [
    output(0, `echo ${message.input}\n`),
    { is: 'end', exitCode: 0, signal: null },
  ];
  readonly #runtimes: readonly MemoryRuntime[];

  constructor(runtimes: readonly MemoryRuntime[]) {
    this.#runtimes = runtimes;
  }

  async deliver(_: string, sandboxId: SandboxId, message: TurnMessage): Promise<DeliveryReceipt> {
    await this.fault('before', message.id);
    const path = `/turns/${message.id}`;
    const runtime = this.#runtimes.find((one) => one.look(sandboxId) !== undefined);
    const record = runtime?.look(sandboxId)?.files[path];
    if (record === 'recorded') return { is: 'unknown', why: 'it was interrupted' };
    if (record === undefined) {
      if (runtime?.work(sandboxId, path, 'recorded') !== true) throw unreachable();
      await this.fault('recorded', message.id);
      this.stdin.push({ sandboxId, message });
      runtime.work(sandboxId, path, 'written');
    }
    await this.fault('after', message.id);
    return { is: 'written', tag: message.id, offset: 0 };
  }

  async *listen(_: string, sandboxId: SandboxId, tag: string, from: number): AsyncGenerator<ProgramOutput> {
    await this.fault('listen', tag as TurnId);
    const written = this.stdin.find(({ message }) => message.id === tag);
    if (written?.sandboxId !== sandboxId) throw new TorporError('not_found', 'There is no such process.');
    for (const said of this.answer(written.message)) {
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
  readonly program: EchoProgram;
  readonly sessions: Sessions;
  /** Starts the sessions of another server, or of this one after a restart. */
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
  const program = new EchoProgram([world.runtime, ...others]);
  const opened: Sessions[] = [];
  const another = async (more: Partial<SessionsParts> = {}) => {
    const sessions = new Sessions({
      engine: world.engine,
      db: world.db,
      clock: world.clock,
      ids: randomIds,
      turnPort: program,
      serverId: 'test',
      alone: true,
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
    program,
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

/** How many sandboxes were ever created. */
export async function sandboxesMade({ db }: World): Promise<number> {
  const [row] = await db.query<{ count: number }>('SELECT COUNT(*) AS count FROM sandboxes');
  return Number(row?.count);
}
