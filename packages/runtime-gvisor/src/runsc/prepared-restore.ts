/**
 * Starts `runsc restore` before the image is known: runsc spends much of its time (some 20 ms) before it
 * looks at the image.
 *
 * Every command of runsc takes the lock of its container first. A shell takes that lock, starts `runsc restore`, and
 * releases the lock when it reads a line. The image path on the command line is a symbolic link, made just before that.
 */
import { stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, minimalEnvironment, programTimedOut, type RunningProgram } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { LOG_FILES, type RunscCli } from './runsc-cli.ts';
import type { Container } from './runsc-container.ts';
import { lastLogged, logSize, runscFailure } from './runsc-failure.ts';

/** A `runsc restore` that runs already and waits to be told which image. */
export interface PreparedRestore {
  /** False when the command no longer waits; then the container cannot be used. */
  readonly isWaiting: boolean;
  /** May be called once. Fails as `Runsc.restore` does. */
  restore(image: string, signal: AbortSignal): Promise<void>;
}

/** What a prepared restore needs to know of the container. */
export interface RestoreTarget {
  readonly container: Container;
  /** Whether `create` has not created the container yet. */
  readonly isNew: boolean;
  /** The file that every command of runsc locks before it looks at the container. */
  readonly lockFile: string;
  /** Lets the sentry run again, which is stopped while the restore waits. */
  readonly continueSentry: () => Promise<void>;
}

/**
 * Holds a lock until a line arrives on the input, and runs a command that waits for the same lock. The script is constant;
 * names are passed as arguments.
 */
const HOLD_LOCK = [
  // Opens the lock file as 9, and keeps the input as 3.
  'exec 9>>"$1" 3<&0',
  'shift',
  'flock 9 || exit',
  // A process in the background inherits the lock and ends with the first line of the input, which releases the lock.
  '{ read -r _ <&3; } & exec 3<&- 9>&-',
  // The command has neither the lock nor the input.
  'exec "$@" </dev/null',
].join('; ');

export class PreparedRestores {
  readonly #cli: RunscCli;
  /** By container id. */
  readonly #waiting = new Map<string, RunningProgram>();

  constructor(cli: RunscCli) {
    this.#cli = cli;
  }

  async begin(target: RestoreTarget): Promise<PreparedRestore> {
    const { container, isNew, lockFile } = target;
    const { id, bundle, logs } = container;
    const imageLink = join(bundle, 'image');
    const command = await this.#cli.loggingCommandLine(container, [
      'restore',
      '--detach',
      `--image-path=${imageLink}`,
      `--bundle=${bundle}`,
      id,
    ]);
    const log = join(logs, LOG_FILES.runsc);
    const before = await logSize(log);
    const held = ['sh', '-c', HOLD_LOCK, 'sh', lockFile, ...command] as const;
    const [program, ...args] = (isNew ? container.wrapCreation?.(held) : undefined) ?? held;
    const running = this.#cli.networkLauncher(container).start({
      program,
      args,
      env: minimalEnvironment(),
      outputFile: this.#cli.outputOf(container),
      waitsForLine: true,
    });
    const waiting = this.#waiting;
    waiting.set(id, running);
    const ended = running.ended.finally(() => waiting.delete(id));
    ended.catch(() => {});
    return {
      get isWaiting() {
        return waiting.has(id);
      },
      restore: async (image, signal) => {
        await requireImage(image);
        await symlink(image, imageLink);
        await target.continueSentry();
        const timeoutMs = this.#cli.timeoutOf('restore');
        const bound = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
        const kill = () => running.kill();
        bound.addEventListener('abort', kill);
        if (bound.aborted) kill();
        else running.sendLine();
        const { status } = await ended.finally(() => bound.removeEventListener('abort', kill));
        signal.throwIfAborted();
        if (status === 0) return;
        // A restore that hangs proves nothing about the image.
        if (status === null && bound.aborted)
          throw programTimedOut(this.#cli.programOf(container), timeoutMs, { container: id });
        throw runscFailure(
          { subcommand: 'restore', container: id, status, output: await lastLogged(log, before) },
          null,
        );
      },
    };
  }

  /** Kills the restore that waits for this container, if there is one. */
  async cancel(id: string): Promise<void> {
    const running = this.#waiting.get(id);
    running?.kill();
    await running?.ended.catch(() => {});
  }
}

/** Proves that an image is missing; runsc would report it like any other failure. */
export async function requireImage(image: string): Promise<void> {
  const path = join(image, 'checkpoint.img');
  await stat(path).catch((cause: unknown) => {
    if (!isMissing(cause)) throw cause;
    throw new TorporError('checkpoint_missing', `There is no memory image in ${image}.`, {
      details: { path },
      cause,
    });
  });
}
