/** Storing an answer as it comes, until the turn ends. Taken up again, it goes on where the stored part ends. */
import { TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { storedBytes, storeOutput } from './output.ts';
import { type Session, setThread } from './session.ts';
import { endTurn, type Turn, type TurnEnd } from './turn.ts';
import type { ProgramOutput } from './turn-port.ts';
import { TurnReader } from './turn-reader.ts';

export async function storeAnswer(ctx: Context, session: Session, turn: Turn): Promise<void> {
  const { sandboxId, tag } = turn;
  if (sandboxId === null || tag === null) throw new TorporError('internal', 'Nobody answers this turn.');
  const stop = new AbortController();
  const signal = AbortSignal.any([ctx.stopping, stop.signal]);
  const writer = new AnswerWriter(ctx, session, turn, await storedBytes(ctx.db, turn.id));
  try {
    for await (const said of ctx.turnPort.listen(session.org, sandboxId, tag, turn.outputEnd, signal)) {
      if (await writer.take(said)) return;
    }
    throw new TorporError('unreachable', 'The sandbox was cut off while the program answered.');
  } catch (thrown) {
    if (!(thrown instanceof TorporError) || thrown.code !== 'not_found') throw thrown;
    const error = noAnswer('The program that answered is gone.');
    await ctx.db.transaction((tx) => endTurn(tx, turn.id, failed(error), ctx.clock.now()));
  } finally {
    stop.abort();
  }
}

class AnswerWriter {
  readonly #ctx: Context;
  readonly #session: Session;
  readonly #turn: Turn;
  readonly #reader: TurnReader;
  #position: number;
  #stored: number;

  constructor(ctx: Context, session: Session, turn: Turn, stored: number) {
    this.#ctx = ctx;
    this.#session = session;
    this.#turn = turn;
    this.#reader = new TurnReader(turn.id);
    this.#position = turn.outputEnd;
    this.#stored = stored;
  }

  /** Whether the turn has ended with it. */
  async take(said: ProgramOutput): Promise<boolean> {
    const { mode } = this.#session.spec.program;
    if (said.is === 'end') {
      const rest = this.#reader.release();
      const bytes = rest.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
      const step = { chunks: rest, thread: null, position: this.#position + bytes };
      await this.#write(step, mode === 'turn' ? exited(said) : failed(noAnswer(endOf(said))));
      return true;
    }
    const step = this.#reader.read(said.channel, said.position, said.bytes);
    await this.#write(step, step.ended && mode === 'service' ? DONE : null);
    return step.ended && mode === 'service';
  }

  /** What was said, what it means and that it is the end are one: a crash leaves all of it or nothing. */
  async #write(
    { chunks, thread, position }: Pick<ReturnType<TurnReader['read']>, 'chunks' | 'thread' | 'position'>,
    end: TurnEnd | null,
  ): Promise<void> {
    const ctx = this.#ctx;
    const turn = this.#turn;
    const session = this.#session;
    const kept = this.#stored > ctx.settings.maxOutputBytes ? [] : chunks;
    const isOurs = await ctx.db.transaction(async (tx) => {
      if (!(await storeOutput(tx, turn.id, this.#position, position, kept))) return false;
      if (thread !== null && turn.sandboxId !== null) await setThread(tx, session.id, turn.sandboxId, thread);
      if (end !== null) await endTurn(tx, turn.id, end, ctx.clock.now());
      return true;
    });
    if (!isOurs) throw new TorporError('transitioning', 'Another server listens to this turn.');
    this.#position = position;
    for (const { text } of kept) this.#stored += Buffer.byteLength(text);
  }
}

const DONE: TurnEnd = { state: 'done', exitCode: null, error: null };

function failed(error: TorporError): TurnEnd {
  return { state: 'failed', exitCode: null, error: error.toBody() };
}

function exited({ exitCode }: Extract<ProgramOutput, { is: 'end' }>): TurnEnd {
  return { state: exitCode === 0 ? 'done' : 'failed', exitCode, error: null };
}

function endOf({ exitCode, signal }: Extract<ProgramOutput, { is: 'end' }>): string {
  return signal === null
    ? `The program ended with exit code ${exitCode}.`
    : `The program was ended by ${signal}.`;
}

function noAnswer(what: string): TorporError {
  return new TorporError('no_answer', `${what} It had the turn, and has not ended it.`, {
    retryable: false,
    hint: 'The program may have done what it was asked: look before you send it again.',
  });
}
