/** Stores the answer of a turn as it arrives, until the turn ends. Called again, it continues where the stored part ends. */
import { TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { storedLength, storeOutput } from './output.ts';
import { type Session, setThread } from './session.ts';
import { endTurn, type Turn, type TurnEnd } from './turn.ts';
import type { ProgramOutput } from './turn-port.ts';
import { TurnReader } from './turn-reader.ts';

export async function storeAnswer(ctx: Context, session: Session, turn: Turn): Promise<void> {
  const { sandboxId, tag } = turn;
  if (sandboxId === null || tag === null) throw new TorporError('internal', 'No process answers this turn.');
  const stop = new AbortController();
  const signal = AbortSignal.any([ctx.stopping, stop.signal]);
  const writer = new AnswerWriter(ctx, session, turn, await storedLength(ctx.db, turn.id));
  try {
    for await (const output of ctx.turnPort.listen(session.org, sandboxId, tag, turn.outputEnd, signal)) {
      if (await writer.take(output)) return;
    }
    throw new TorporError('unreachable', 'The connection to the sandbox broke while the program answered.');
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

  /** Returns whether the turn has ended with this output. */
  async take(output: ProgramOutput): Promise<boolean> {
    const { mode } = this.#session.spec.program;
    if (output.is === 'end') {
      const rest = this.#reader.release();
      const bytes = rest.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
      const step = { chunks: rest, thread: null, position: this.#position + bytes };
      await this.#write(step, mode === 'turn' ? exited(output) : failed(noAnswer(endOf(output))));
      return true;
    }
    const step = this.#reader.read(output.channel, output.position, output.bytes);
    await this.#write(step, step.ended && mode === 'service' ? DONE : null);
    return step.ended && mode === 'service';
  }

  /** Writes the output, the thread and the end of the turn in one transaction: a crash leaves all of it or nothing. */
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
    if (!isOurs) throw new TorporError('transitioning', 'Another server stores the answer of this turn.');
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
  return new TorporError('no_answer', `${what} It had received the turn and not ended it.`, {
    retryable: false,
    hint: 'The program may have acted on the turn: check before you send it again.',
  });
}
