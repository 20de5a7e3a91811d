/**
 * Starts `runsc restore` before the image is known, as a prepared command. The image path on the command line is a
 * symbolic link, made just before the command goes on.
 */
import { stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, programTimedOut } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { holdingLock, PreparedCommands } from './prepared-command.ts';
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
