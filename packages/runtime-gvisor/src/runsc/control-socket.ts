/**
 * Calls a sentry directly, on the socket that every command of runsc uses: one JSON object asks, one JSON object answers.
 * A call takes about a millisecond; the start of the program `runsc` takes more than twenty.
 */
import { connect, type Socket } from 'node:net';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

/** The methods that are called here. Their names are the same in every version of runsc that is supported. */
export type SentryMethod = 'containerManager.Pause' | 'containerManager.Resume';

/** The sentry answered that it does not do what it was asked to, as opposed to no answer. */
export class SentryRefusal extends TorporError {
  constructor(method: SentryMethod, why: string) {
    super('internal', `The sentry refused ${method}: ${why}`);
  }
}

const answerSchema = z.object({ success: z.boolean(), err: z.string().default('') });
type Answer = z.infer<typeof answerSchema>;

/** More than any answer to these methods; a longer answer is refused. */
const LONGEST_ANSWER = 64 * 1024;

/** A connection to a sentry, opened when it is made. It is for one call, and closed by it. */
export class SentryConnection {
  readonly #socket: Socket;

  constructor(socketPath: string) {
    this.#socket = connect({ path: socketPath });
    // `ask` finds an error that came before the call.
    this.#socket.on('error', () => {});
  }

  /** Resolves when the sentry has done what was asked. After a throw it may or may not have done it. */
  async call(method: SentryMethod, signal: AbortSignal): Promise<void> {
    const { success, err } = await ask(this.#socket, JSON.stringify({ method, arg: {} }), signal);
    if (!success) throw new SentryRefusal(method, err);
  }

  /** For a connection that is not used. */
  close(): void {
    this.#socket.destroy();
  }
}

function ask(socket: Socket, call: string, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let text = '';
    const end = (settle: () => void) => {
      signal.removeEventListener('abort', abort);
      socket.destroy();
      settle();
    };
    const fail = (why: string, cause?: unknown) =>
      end(() => reject(new TorporError('unreachable', `The sentry does not answer: ${why}.`, { cause })));
    const abort = () => end(() => reject(signal.reason));
    signal.addEventListener('abort', abort);
    if (signal.aborted) return abort();
    const { errored } = socket;
    if (errored !== null) return fail(errorCode(errored), errored);
    if (socket.destroyed) return fail('it closed the connection');
    socket.setEncoding('utf8');
    socket.on('error', (error) => fail(errorCode(error), error));
    socket.on('close', () => fail('it closed the connection'));
    socket.on('data', (chunk: string) => {
      text += chunk;
      const answer = parse(text);
      if (answer !== undefined) end(() => resolve(answer));
      else if (text.length > LONGEST_ANSWER) fail('its answer is too long');
    });
    socket.write(call);
  });
}

function errorCode(error: NodeJS.ErrnoException): string {
  return error.code ?? error.message;
}

/** Undefined while the answer is not complete. */
function parse(text: string): Answer | undefined {
  try {
    return answerSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
