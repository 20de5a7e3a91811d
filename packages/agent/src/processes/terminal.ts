/** A process in a terminal of its own. */
import { chownSync } from 'node:fs';
import type { IPty } from '@lydell/node-pty';
import { TorporError } from '@torpor/protocol';
import type { User } from '../identity/users.ts';
import { endedBy, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import type { LaunchSpec, StartedProcess, TerminalSize } from './started-process.ts';

/** How often a paused terminal is checked for the exit of its process. */
const EXIT_POLL_MS = 50;

const MAX_SIDE = 65_535;

/** Loaded on demand: an agent that cannot load the native library can still do everything else. */
export function loadTerminals(): Promise<typeof import('@lydell/node-pty')> {
  return import('@lydell/node-pty');
}

export async function startTerminal(spec: LaunchSpec, size: TerminalSize): Promise<StartedProcess> {
  const { spawn } = await loadTerminals();
  const terminal = spawn(spec.command, [...spec.args], {
    cwd: spec.cwd,
    env: { ...spec.env },
    ...checkedSize(size),
    encoding: null,
    ...(spec.user === undefined ? {} : { uid: spec.user.uid, gid: spec.user.gid }),
  });
  const { pid } = terminal;
  // With `encoding: null` the terminal takes bytes too, which its type does not say.
  const byteInput: { write(data: string | Buffer): void } = terminal;
  if (spec.user !== undefined) chownTerminal(spec.user, terminal);
  let poll: NodeJS.Timeout | undefined;
  const output = new OutputRing(spec.keptBytes, {
    pause: () => {
      terminal.pause();
      // The library closes the terminal soon after the exit, even with unread output. What is left then is little
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
    ended: waitForEnd(terminal, output, () => clearInterval(poll)),
    write: async (kind, bytes) => {
      if (kind === 'stdin')
        throw new TorporError('conflict', 'The process runs in a terminal; send "pty" input.');
      byteInput.write(Buffer.from(bytes));
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

function waitForEnd(terminal: IPty, output: OutputRing, stopPolling: () => void): StartedProcess['ended'] {
  return new Promise((resolve) => {
    terminal.onExit(({ exitCode, signal }) => {
      stopPolling();
      output.finish();
      resolve(signal ? endedBy(signal) : exitedWith(exitCode));
    });
  });
}

/** The agent's user owns the terminal. The process's user could otherwise not open it by name. */
function chownTerminal({ uid, gid }: User, terminal: IPty): void {
  // The library has this field but does not declare it.
  const { ptsName } = terminal as IPty & { readonly ptsName?: string };
  if (!ptsName?.startsWith('/dev/pts/')) return;
  try {
    chownSync(ptsName, uid, gid);
  } catch {
    // The terminal still works; its user only cannot open it by name.
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
