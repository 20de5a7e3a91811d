/** The declared services of a sandbox, joined with their processes. */
import type { ProcessView, SandboxView } from '@torpor/protocol';

/** A service: its declaration and its present status. */
export interface ServiceView {
  readonly name: string;
  readonly command: string;
  readonly port: number | null;
  /** The address of its port; null when it has no port, or the port cannot be reached now. */
  readonly url: string | null;
  /** Null when it is not known, for example while the sandbox is being created. */
  readonly status: ProcessView['status'] | null;
  /** Why the service is lost, or how it ended. */
  readonly reason: string | null;
  readonly pid: number | null;
  readonly startedAt: number | null;
}

export function servicesOf(sandbox: SandboxView, processes: readonly ProcessView[]): readonly ServiceView[] {
  return sandbox.services.map(({ name, command, port }) => {
    const process = processes.find(({ kind, id }) => kind === 'service' && id === name);
    return {
      name,
      command,
      port: port ?? null,
      url: (port === undefined ? undefined : sandbox.urls?.[port]) ?? null,
      status: process?.status ?? null,
      reason: process?.reason ?? null,
      pid: process?.pid ?? null,
      startedAt: process?.startedAt ?? null,
    };
  });
}
