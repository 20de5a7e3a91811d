/**
 * Starts `runsc checkpoint` before the container is frozen, as a command that is held. The image path on the command line is
 * a symbolic link, made just before the command goes on.
 */
import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProgramResult } from '@torpor/host';
import { type HeldCommand, HeldCommands, holdingLock } from './held-command.ts';
import type { RunscCli } from './runsc-cli.ts';
import type { Container } from './runsc-container.ts';

interface PreparedCheckpoint {
  readonly command: HeldCommand;
  readonly imageLink: string;
}

export class PreparedCheckpoints {
  readonly #cli: RunscCli;
  readonly #held = new HeldCommands();
  /** By container id. */
  readonly #prepared = new Map<string, PreparedCheckpoint>();

  constructor(cli: RunscCli) {
    this.#cli = cli;
  }

  /** Does nothing when a checkpoint of the container is prepared already. */
  async begin(container: Container, lockFile: string): Promise<void> {
    const { id, bundle } = container;
    if (this.#prepared.get(id)?.command.isWaiting === true) return;
    const imageLink = join(bundle, 'checkpoint-image');
    await rm(imageLink, { force: true });
    const command = holdingLock(lockFile, this.#cli.checkpointCommand(container, imageLink));
    this.#prepared.set(id, {
      command: this.#held.begin(id, command, { launcher: this.#cli.launcher }),
      imageLink,
    });
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
      await mkdir(image, { recursive: true });
      await symlink(image, prepared.imageLink);
    } catch (thrown) {
      await this.#held.cancel(id);
      throw thrown;
    }
    return prepared.command.release(signal);
  }

  /** Kills the checkpoint that waits for this container, if there is one. */
  async cancel(id: string): Promise<void> {
    this.#prepared.delete(id);
    await this.#held.cancel(id);
  }
}
