/**
 * Processes and sockets as `ps` and `lsof` show them, for systems without /proc. They do not show
 * environments, so that a process which left its parent is not found: this is the best effort there.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { HostProcesses, Listener, ProcessFacts } from './host-processes.ts';

const run = promisify(execFile);

export const portableProcesses: HostProcesses = {
  bootId: async () => '',
  read: async (pid) => (await listed(['-p', String(pid)])).find((facts) => facts.pid === pid),
  all: () => listed(['-A']),
  marks: async () => [],
  users: async () => [],

  async listeners(port) {
    const lines = await output('lsof', ['-nP', `-iTCP:${port}`, '-sTCP:LISTEN', '-Fn']);
    return lines.flatMap((line): Listener[] => {
      const [, host] = /^n(.*):\d+$/.exec(line) ?? [];
      if (host === undefined) return [];
      const address = host === '*' ? '0.0.0.0' : host.replace(/^\[(.*)\]$/, '$1');
      return [{ address, port, socket: line }];
    });
  },

  async holds({ pid }, sockets) {
    const lines = await output('lsof', ['-nP', '-a', '-p', String(pid), '-iTCP', '-sTCP:LISTEN', '-Fn']);
    return lines.filter((line) => sockets.has(line));
  },
};

async function listed(which: readonly string[]): Promise<ProcessFacts[]> {
  const lines = await output('ps', [...which, '-o', 'pid=,ppid=,pgid=,state=,lstart=']);
  return lines.flatMap((line) => parseLine(line) ?? []);
}

export function parseLine(line: string): ProcessFacts | undefined {
  const [, pid, parent, group, state, startedAt] =
    /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.*\S)/.exec(line) ?? [];
  if (pid === undefined || state === undefined || startedAt === undefined) return undefined;
  return {
    pid: Number(pid),
    parent: Number(parent),
    // The process group stands in for the session, which `ps` does not show everywhere.
    session: Number(group),
    startedAt,
    state: /^[Tt]/.test(state)
      ? 'stopped'
      : /^[ZX]/.test(state)
        ? 'dead'
        : /^[DU]/.test(state)
          ? 'busy'
          : 'moving',
  };
}

/** Both programs end with an error when they find nothing. */
async function output(program: string, args: readonly string[]): Promise<string[]> {
  const { stdout } = await run(program, [...args], { env: { ...process.env, LC_ALL: 'C' } }).catch(() => ({
    stdout: '',
  }));
  return stdout.split('\n').filter((line) => line !== '');
}
