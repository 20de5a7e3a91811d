/**
 * Starts `runsc checkpoint` before the container is frozen, as a prepared command. The image path on the command line is
 * a symbolic link, made just before the command goes on.
 */
import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProgramResult } from '@torpor/host';
import { holdingLock, type PreparedCommand, PreparedCommands } from './prepared-command.ts';
import type { RunscCli } from './runsc-cli.ts';
import type { Container } from './runsc-container.ts';

interface PreparedCheckpoint {
  readonly command: PreparedCommand;
  readonly imageLink: string;
  /** Resolves when the link of an earlier checkpoint is removed. */
  readonly cleared: Promise<void>;
}

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
