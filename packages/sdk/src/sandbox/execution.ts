/**
 * A command that was given to a sandbox: a promise of how it ended, or its output as it comes.
 *
 * Like every promise it is under way from the moment it is made. It is sent as a stream when it is iterated
 * in the statement that makes it, and else as one question with one answer.
 */
import { type ExecReply, TorporError } from '@torpor/protocol';
import type { ExecEvent } from '../exec.ts';

export interface ExecutionForms {
  /** The answer in one piece. */
  whole(): Promise<ExecReply>;
  /** The same as a stream. */
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
  private readonly forms: ExecutionForms;
  private streamed = false;
  private answer: Promise<ExecReply> | undefined;

  constructor(forms: ExecutionForms) {
    this.forms = forms;
    // A loop takes hold of the stream at once; whatever is later than that came for the answer.
    queueMicrotask(() => {
      if (!this.streamed) void this.whole();
    });
  }

  // biome-ignore lint/suspicious/noThenProperty: to be awaited is what it is for.
  then<A = ExecReply, B = never>(
    onReply?: ((reply: ExecReply) => A | PromiseLike<A>) | null,
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.whole().then(onReply, onFailure);
  }

  catch<B = never>(onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<ExecReply | B> {
    return this.whole().catch(onFailure);
  }

  finally(onEnd?: (() => void) | null): Promise<ExecReply> {
    return this.whole().finally(onEnd);
  }

  /** Leaving the loop early ends the command. */
  [Symbol.asyncIterator](): AsyncGenerator<ExecEvent, void> {
    if (this.streamed || this.answer !== undefined) throw usedUp('iterated');
    this.streamed = true;
    return this.forms.stream();
  }

  private whole(): Promise<ExecReply> {
    if (this.streamed) return Promise.reject(usedUp('awaited'));
    this.answer ??= this.forms.whole();
    return this.answer;
  }
}

function usedUp(asked: 'awaited' | 'iterated'): TorporError {
  return new TorporError('conflict', `This command runs already, and cannot be ${asked} any more.`, {
    hint: 'Await it, or iterate it in the statement that starts it: for await (const event of sandbox.exec(…)).',
  });
}
