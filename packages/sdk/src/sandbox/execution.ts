/**
 * A command in a sandbox: a promise of its result, or an iterator over its output.
 *
 * The command starts at once, like a promise. It is sent as a stream if it is iterated in the statement that creates it,
 * else as one request with one reply.
 */
import { type ExecReply, TorporError } from '@torpor/protocol';
import type { ExecEvent } from '../exec.ts';

export interface ExecutionForms {
  /** Runs the command with one reply at its end. */
  whole(): Promise<ExecReply>;
  /** Runs the command with its output as a stream. */
  stream(): AsyncGenerator<ExecEvent, void>;
}

/**
 * ```ts
 * const { exitCode, stdout } = await sandbox.exec('npm test');
 *
 * for await (const event of sandbox.exec('npm run build')) {
 *   if (event.type === 'stdout') process.stdout.write(event.data);
 * }
 * ```
 */
export class Execution implements PromiseLike<ExecReply>, AsyncIterable<ExecEvent> {
  readonly #forms: ExecutionForms;
  #streamed = false;
  #answer: Promise<ExecReply> | undefined;

  constructor(forms: ExecutionForms) {
    this.#forms = forms;
    // A `for await` loop asks for the iterator at once. If none has by now, the caller awaits the reply.
    queueMicrotask(() => {
      if (!this.#streamed) void this.#whole();
    });
  }

  // biome-ignore lint/suspicious/noThenProperty: an execution is meant to be awaited.
  then<A = ExecReply, B = never>(
    onReply?: ((reply: ExecReply) => A | PromiseLike<A>) | null,
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#whole().then(onReply, onFailure);
  }

  catch<B = never>(onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<ExecReply | B> {
    return this.#whole().catch(onFailure);
  }

  finally(onEnd?: (() => void) | null): Promise<ExecReply> {
    return this.#whole().finally(onEnd);
  }

  /** Leaving the loop early ends the command. */
  [Symbol.asyncIterator](): AsyncGenerator<ExecEvent, void> {
    if (this.#streamed || this.#answer !== undefined) throw usedUp('iterated');
    this.#streamed = true;
    return this.#forms.stream();
  }

  #whole(): Promise<ExecReply> {
    if (this.#streamed) return Promise.reject(usedUp('awaited'));
    this.#answer ??= this.#forms.whole();
    return this.#answer;
  }
}

function usedUp(asked: 'awaited' | 'iterated'): TorporError {
  return new TorporError('conflict', `This command runs already, and cannot be ${asked} any more.`, {
    hint: 'Await it, or iterate it in the statement that starts it: for await (const event of sandbox.exec(…)).',
  });
}
