/** How processes and services look from outside, with the one status each has (R98). */
import { type ProcessInfo, serviceTag } from '@torpor/envd';
import type { ProcessStatus, ProcessView, SandboxView, Service } from '@torpor/protocol';
import { commandOf } from './command.ts';
import type { TrackedProcess } from './tracked-table.ts';

export function viewTracked(
  process: TrackedProcess,
  status: ProcessStatus,
  reason: string | null,
): ProcessView {
  const { id, pid, command, cwd, startedAt } = process;
  return { id, kind: 'background', pid, command, cwd, status, reason, startedAt };
}

/** One that the agent runs and nobody tracks: a command somebody waits for, or one of E2B's clients. */
export function viewRunning({ pid, config }: ProcessInfo): ProcessView {
  const command = config === undefined ? '' : commandOf(config);
  const cwd = config?.cwd ?? null;
  return { id: null, kind: 'process', pid, command, cwd, status: 'running', reason: null, startedAt: null };
}

export function viewService(
  service: Service,
  pid: number | null,
  status: ProcessStatus,
  reason: string | null,
): ProcessView {
  const { name, command, cwd = null } = service;
  return { id: name, kind: 'service', pid, command, cwd, status, reason, startedAt: null };
}

/** Runtimes tag the process of a service with its name. */
export function isRunOf(service: Service, { tag }: Pick<ProcessInfo, 'tag'>): boolean {
  return tag === serviceTag(service.name);
}

/** What becomes of everything in a sandbox that is not running; undefined when it is. */
export function fateOf(
  sandbox: SandboxView,
): { readonly status: ProcessStatus; readonly reason: string | null } | undefined {
  switch (sandbox.state) {
    case 'running':
      return undefined;
    case 'killing':
    case 'killed':
      return { status: 'lost', reason: 'the sandbox was killed' };
    case 'failed':
    case 'lost':
      return { status: 'lost', reason: sandbox.reason ?? `the sandbox is ${sandbox.state}` };
    default:
      return { status: 'suspended', reason: null };
  }
}
