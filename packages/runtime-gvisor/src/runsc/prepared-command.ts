/**
 * Starts a command of runsc before everything that it needs is known. The start of the program takes some 20 ms.
 *
 * Every command of runsc takes the lock of its container before it looks at the container. A shell takes that lock, starts
 * the command, and releases the lock when it reads a line. If the input ends without a line, because the server has died,
 * the command is killed. No other command of runsc may be run for the container meanwhile.
 */
import { type Launcher, minimalEnvironment, type ProgramResult, type RunningProgram } from '@torpor/host';
import type { CommandLine } from './runsc-cli.ts';

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
export function holdingLock(lockFile: string, command: CommandLine): CommandLine {
  return ['sh', '-c', HOLD_LOCK, 'sh', lockFile, ...command];
}

export interface PreparedCommand {
  /** False when the command has ended. */
  readonly isWaiting: boolean;
  /** Lets the command go on and resolves with its result. The signal kills the command. May be called once. */
  release(signal: AbortSignal): Promise<ProgramResult>;
}

/** The commands that wait or were released, at most one for each container. */
export class PreparedCommands {
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
