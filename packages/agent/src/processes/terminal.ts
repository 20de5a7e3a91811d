/** A process in a terminal of its own. */
import { chownSync } from 'node:fs';
import type { IPty } from '@lydell/node-pty';
import { TorporError } from '@torpor/protocol';
import type { User } from '../identity/users.ts';
import { endedBy, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import type { LaunchOrder, StartedProcess, TerminalSize } from './started-process.ts';

/** How often a terminal that is held back is asked whether its process still lives. */
const EXIT_POLL_MS = 50;

const MAX_SIDE = 65_535;

/** Native and only wanted here, so an agent whose system cannot load it does everything else. */
export function loadTerminals(): Promise<typeof import('@lydell/node-pty')> {
  return import('@lydell/node-pty');
}

export async function startTerminal(order: LaunchOrder, size: TerminalSize): Promise<StartedProcess> {
  const { spawn } = await loadTerminals();
  const terminal = spawn(order.command, [...order.args], {
    cwd: order.cwd,
    env: { ...order.env },
    ...checkedSize(size),
    encoding: null,
    ...(order.user === undefined ? {} : { uid: order.user.uid, gid: order.user.gid }),
  });
  const { pid } = terminal;
  if (order.user !== undefined) giveTo(order.user, terminal);
  let poll: NodeJS.Timeout | undefined;
  const output = new OutputRing(order.keptBytes, {
    pause: () => {
      terminal.pause();
      // The library closes the terminal soon after an exit, read or not; what is left then is little
      // and fits into the ring, so it is read at once.
      poll = setInterval(() => !isAlive(pid) && terminal.resume(), EXIT_POLL_MS).unref();
    },
    resume: () => {
      clearInterval(poll);
      terminal.resume();
    },
  });
  terminal.onData((data: string | Buffer) => output.append('pty', Buffer.from(data as Buffer)));
  return {
    pid,
    output,
    ended: endOf(terminal, output, () => clearInterval(poll)),
    write: async (kind, bytes) => {
      if (kind === 'stdin')
        throw new TorporError('conflict', 'The process runs in a terminal; send "pty" input.');
      terminal.write(Buffer.from(bytes) as unknown as string);
    },
    closeStdin: () => {
      throw new TorporError('conflict', 'A terminal has no input to close; send the end-of-file character.');
    },
    resize: (next) => {
      const { cols, rows } = checkedSize(next);
      terminal.resize(cols, rows);
    },
  };
}

function endOf(terminal: IPty, output: OutputRing, stopPolling: () => void): StartedProcess['ended'] {
  return new Promise((resolve) => {
    terminal.onExit(({ exitCode, signal }) => {
      stopPolling();
      output.finish();
      resolve(signal ? endedBy(signal) : exitedWith(exitCode));
    });
  });
}

/** The terminal was opened by the agent: its user could otherwise not open it by name. */
function giveTo({ uid, gid }: User, terminal: IPty): void {
  // The library has it and does not declare it.
  const { ptsName } = terminal as IPty & { readonly ptsName?: string };
  if (!ptsName?.startsWith('/dev/pts/')) return;
  try {
    chownSync(ptsName, uid, gid);
  } catch {
    // Then it is a terminal like any other, only without a name for its user.
  }
}

function checkedSize({ cols, rows }: TerminalSize): TerminalSize {
  for (const side of [cols, rows]) {
    if (!Number.isInteger(side) || side < 1 || side > MAX_SIDE) {
      throw new TorporError('invalid_request', 'The size of a terminal is at least 1 by 1.');
    }
  }
  return { cols, rows };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
