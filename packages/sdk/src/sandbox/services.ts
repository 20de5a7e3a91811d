/** The declared services of a sandbox: what was asked for, together with what has become of it. */
import type { ProcessView, SandboxView } from '@torpor/protocol';

/** A service as it is declared and as it is now. */
export interface ServiceView {
  readonly name: string;
  readonly command: string;
  readonly port: number | null;
  /** Where its port can be reached; null where it has none, or cannot be reached now. */
  readonly url: string | null;
  /** Null when nothing is known of it, as while the sandbox is being created. */
  readonly status: ProcessView['status'] | null;
  /** Why it is lost, or how it ended. */
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
