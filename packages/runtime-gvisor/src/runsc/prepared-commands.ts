/**
 * Starts a checkpoint or a restore of runsc before everything that it needs is known. The start of the program takes some
 * 20 ms. The image path on the command line is a symbolic link, made just before the command goes on.
 *
 * Every command of runsc takes the lock of its container before it looks at the container. A shell takes that lock, starts
 * the command, and releases the lock when it reads a line. If the input ends without a line, because the server has died,
 * the command is killed. No other command of runsc may be run for the container meanwhile.
 */
import { mkdir, rm, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import {
  isMissing,
  type Launcher,
  minimalEnvironment,
  type ProgramResult,
  programTimedOut,
  type RunningProgram,
} from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { type CommandLine, LOG_FILES, type RunscCli } from './runsc-cli.ts';
import type { Container } from './runsc-container.ts';
import { lastLogged, logSize, runscFailure } from './runsc-failure.ts';

/** The script is constant; names are passed as arguments. */
const HOLD_LOCK = [
  // Opens the lock file as 9, and keeps the input as 3.
  'exec 9>>"$1" 3<&0',
  'shift',
  'flock 9 || exit',
  // A process in the background inherits the lock and ends with the first line of the input, which releases the lock. The
  // command becomes the process $$.
  '{ read -r _ <&3 || kill -9 $$; } & exec 3<&- 9>&-',
  // The command has neither the lock nor the input.
  'exec "$@" </dev/null',
].join('; ');

/** The command line of a process that holds the lock until it reads a line, and then becomes the command. */
function holdingLock(lockFile: string, command: CommandLine): CommandLine {
  return ['sh', '-c', HOLD_LOCK, 'sh', lockFile, ...command];
}

interface PreparedCommand {
  /** False when the command has ended. */
  readonly isWaiting: boolean;
  /** Lets the command go on and resolves with its result. The signal kills the command. May be called once. */
  release(signal: AbortSignal): Promise<ProgramResult>;
}

/** The commands that wait or were released, at most one for each container. */
class PreparedCommands {
  /** By container id. */
  readonly #running = new Map<string, RunningProgram>();

  /** `command` holds the lock itself: see `holdingLock`. */
  begin(
    id: string,
    [program, ...args]: CommandLine,
    { launcher, outputFile }: { readonly launcher: Launcher; readonly outputFile?: string },
  ): PreparedCommand {
    const running = launcher.start({
      program,
      args,
      env: minimalEnvironment(),
      waitsForLine: true,
      ...(outputFile === undefined ? {} : { outputFile }),
    });
    const commands = this.#running;
    commands.set(id, running);
    const ended = running.ended.finally(() => {
      if (commands.get(id) === running) commands.delete(id);
    });
    ended.catch(() => {});
    return {
      get isWaiting() {
        return commands.get(id) === running;
      },
      release: async (signal) => {
        const kill = () => running.kill();
        signal.addEventListener('abort', kill);
        if (signal.aborted) kill();
        else running.sendLine();
        return ended.finally(() => signal.removeEventListener('abort', kill));
      },
    };
  }

  /** Kills the command of this container, if there is one. */
  async cancel(id: string): Promise<void> {
    const running = this.#running.get(id);
    running?.kill();
    await running?.ended.catch(() => {});
  }
}

interface PreparedCheckpoint {
  readonly command: PreparedCommand;
  readonly imageLink: string;
  /** Resolves when the link of an earlier checkpoint is removed. */
  readonly cleared: Promise<void>;
}

/** Checkpoints that are started before the container is frozen. */
export class PreparedCheckpoints {
  readonly #cli: RunscCli;
  readonly #commands = new PreparedCommands();
  /** By container id. */
  readonly #prepared = new Map<string, PreparedCheckpoint>();

  constructor(cli: RunscCli) {
    this.#cli = cli;
  }

  /** Does nothing when a checkpoint of the container is prepared already. */
  begin(container: Container, lockFile: string): void {
    const { id, bundle } = container;
    if (this.#prepared.get(id)?.command.isWaiting === true) return;
    const imageLink = join(bundle, 'checkpoint-image');
    const command = holdingLock(lockFile, this.#cli.checkpointCommand(container, imageLink));
    const started = this.#commands.begin(id, command, { launcher: this.#cli.launcher });
    const cleared = rm(imageLink, { force: true });
    cleared.catch(() => {});
    this.#prepared.set(id, { command: started, imageLink, cleared });
  }

  /**
   * Has the prepared command write the image. Undefined when none is prepared. Rejects when the command could not be run to
   * its end, for example because the process that starts programs has ended.
   */
  async write(id: string, image: string, signal: AbortSignal): Promise<ProgramResult | undefined> {
    const prepared = this.#prepared.get(id);
    this.#prepared.delete(id);
    if (prepared?.command.isWaiting !== true) return undefined;
    try {
      await Promise.all([prepared.cleared, mkdir(image, { recursive: true })]);
      await symlink(image, prepared.imageLink);
    } catch (thrown) {
      await this.#commands.cancel(id);
      throw thrown;
    }
    return prepared.command.release(signal);
  }

  /** Kills the checkpoint that waits for this container, if there is one. */
  async cancel(id: string): Promise<void> {
    this.#prepared.delete(id);
    await this.#commands.cancel(id);
  }
}

/** A `runsc restore` that runs already and waits to be told which image. */
export interface PreparedRestore {
  /** False when the command no longer waits; then the container cannot be used. */
  readonly isWaiting: boolean;
  /** May be called once. Fails as `Runsc.restore` does. */
  restore(image: string, signal: AbortSignal): Promise<void>;
}

/** What a prepared restore needs to know of the container. */
interface RestoreTarget {
  readonly container: Container;
  /** Whether `create` has not created the container yet. */
  readonly isNew: boolean;
  /** The file that every command of runsc locks before it looks at the container. */
  readonly lockFile: string;
  /** Lets the sentry run again, which is stopped while the restore waits. */
  readonly continueSentry: () => Promise<void>;
}

/** Restores that are started before it is known which image they restore. */
export class PreparedRestores {
  readonly #cli: RunscCli;
  readonly #commands = new PreparedCommands();

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
    const holding = holdingLock(lockFile, command);
    const started = this.#commands.begin(
      id,
      (isNew ? container.wrapCreation?.(holding) : undefined) ?? holding,
      {
        launcher: this.#cli.networkLauncher(container),
        outputFile: this.#cli.outputOf(container),
      },
    );
    return {
      get isWaiting() {
        return started.isWaiting;
      },
      restore: async (image, signal) => {
        await requireImage(image);
        await symlink(image, imageLink);
        await target.continueSentry();
        const timeoutMs = this.#cli.timeoutOf('restore');
        const bound = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
        const { status } = await started.release(bound);
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
  cancel(id: string): Promise<void> {
    return this.#commands.cancel(id);
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
