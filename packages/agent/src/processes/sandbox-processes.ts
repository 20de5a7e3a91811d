/** Lists the processes of this sandbox from /proc. */
import { readdir, readFile } from 'node:fs/promises';
import { SANDBOX_VARIABLE } from '@torpor/envd';

export interface SandboxProcess {
  readonly pid: number;
  readonly name: string;
  /** Processor time used, in ticks of 10 ms. */
  readonly ticks: number;
  readonly residentPages: number;
}

export interface ProcessScope {
  /**
   * Set where several sandboxes share one machine: only processes with this sandbox's variable, or descendants of the
   * agent, belong to the sandbox.
   */
  readonly shared: { readonly sandboxId: string; readonly agentPid: number } | undefined;
}

export async function sandboxProcesses(scope: ProcessScope): Promise<SandboxProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const all = new Map<number, ProcStat>();
  for (const pid of pids) {
    const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    const stat = parseStat(text);
    if (stat !== undefined) all.set(pid, stat);
  }
  const own: SandboxProcess[] = [];
  for (const [pid, stat] of all) {
    if (pid === process.pid || !(await belongs(pid, all, scope))) continue;
    own.push({ pid, name: stat.name, ticks: stat.ticks, residentPages: stat.residentPages });
  }
  return own;
}

interface ProcStat {
  readonly parent: number;
  readonly name: string;
  readonly ticks: number;
  readonly residentPages: number;
}

/** The name is in parentheses and may itself contain parentheses, so the last closing one ends it. */
export function parseStat(text: string): ProcStat | undefined {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open === -1 || close === -1) return undefined;
  const fields = text.slice(close + 2).split(' ');
  return {
    name: text.slice(open + 1, close),
    parent: Number(fields[1]),
    ticks: Number(fields[11]) + Number(fields[12]),
    residentPages: Number(fields[21]),
  };
}

async function belongs(
  pid: number,
  all: ReadonlyMap<number, ProcStat>,
  { shared }: ProcessScope,
): Promise<boolean> {
  if (shared === undefined) return true;
  for (let current = pid; current > 1; current = all.get(current)?.parent ?? 0) {
    if (current === shared.agentPid) return true;
  }
  if (shared.sandboxId === '') return false;
  const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
  return environment.split('\0').includes(`${SANDBOX_VARIABLE}=${shared.sandboxId}`);
}
