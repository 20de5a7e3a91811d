/**
 * Reads processes and sockets with `ps` and `lsof`, for systems without /proc. These programs do not show environments,
 * so a process that left its parent is not found there.
 */
import { runProgram } from '../programs/run-program.ts';
import type { HostProcesses, Listener, ProcessFacts } from './host-processes.ts';

export const portableProcesses: HostProcesses = {
  bootId: async () => '',
  read: async (pid) => (await listed(['-p', String(pid)])).find((facts) => facts.pid === pid),
  all: () => listed(['-A']),
  torporVariables: async () => [],
  userIds: async () => [],

  async listeners(port) {
    const lines = await outputLines('lsof', ['-nP', `-iTCP:${port}`, '-sTCP:LISTEN', '-Fn']);
    return lines.flatMap((line): Listener[] => {
      const [, host] = /^n(.*):\d+$/.exec(line) ?? [];
      if (host === undefined) return [];
      const address = host === '*' ? '0.0.0.0' : host.replace(/^\[(.*)\]$/, '$1');
      return [{ address, port, socket: line, user: null }];
    });
  },

  async heldSockets({ pid }, sockets) {
    const lines = await outputLines('lsof', ['-nP', '-a', '-p', String(pid), '-iTCP', '-sTCP:LISTEN', '-Fn']);
    return lines.filter((line) => sockets.has(line));
  },
};

async function listed(which: readonly string[]): Promise<ProcessFacts[]> {
  const lines = await outputLines('ps', [...which, '-o', 'pid=,ppid=,pgid=,state=,lstart=']);
  return lines.flatMap((line) => parseLine(line) ?? []);
}

export function parseLine(line: string): ProcessFacts | undefined {
  const [, pid, parent, group, state, startedAt] =
    /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.*\S)/.exec(line) ?? [];
  if (pid === undefined || state === undefined || startedAt === undefined) return undefined;
  return {
    pid: Number(pid),
    parent: Number(parent),
    // The process group is used as the session, which `ps` does not show on every system.
    session: Number(group),
    group: Number(group),
    startedAt,
    state: /^[Tt]/.test(state)
      ? 'stopped'
      : /^[ZX]/.test(state)
        ? 'dead'
        : /^[DU]/.test(state)
          ? 'uninterruptible'
          : 'running',
  };
}

/** Both programs exit with an error status when they find nothing. */
async function outputLines(program: string, args: readonly string[]): Promise<string[]> {
  const { stdout } = await runProgram(program, args, { env: { LC_ALL: 'C' } }).catch(() => ({ stdout: '' }));
  return stdout.split('\n').filter((line) => line !== '');
}
