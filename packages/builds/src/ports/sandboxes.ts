/**
 * What a build asks of sandboxes. The server answers with the engine; a test answers with a provider whose
 * faults it writes itself.
 *
 * That a sandbox is gone for good is said by type: a `TorporError` about the sandbox or its checkpoints that is not
 * retryable (`preview/gone.ts` has the codes). Everything else may pass.
 */
import type { Capabilities, CheckpointId, JobId, SandboxId, SandboxState, Service } from '@torpor/protocol';
import type { GeneratedFile } from '../runners/generated-files.ts';

export interface NewSandbox {
  readonly org: string;
  readonly jobId: JobId;
  readonly lifetimeSeconds: number;
  /** Begins as a fork of this one, files and all; else empty. Only where the runtime can fork. */
  readonly from?: SandboxId | undefined;
}

export interface CommandOrder {
  readonly command: string;
  readonly cwd: string;
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly output: (channel: 'stdout' | 'stderr', text: string) => void;
}

export interface SandboxGlance {
  readonly state: SandboxState;
  readonly checkpointId: CheckpointId | null;
  /** When its time is over; null while it does not run. */
  readonly endsAt: number | null;
  /** Why it is in this state, where the platform says so. */
  readonly reason: string | null;
  /**
   * What is wrong with the checkpoint of one that is paused; null when nothing is known to be. `sure`: a start of it
   * has failed for that reason and will fail again.
   */
  readonly damage: { readonly sure: boolean; readonly reason: string } | null;
}

export interface Visit {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** What the runtime under a sandbox can do for a build. */
export type BuildCapabilities = Pick<Capabilities, 'pause' | 'fork'>;

export interface BuildSandboxes {
  /** Of the runtime of this sandbox, or of the one that new sandboxes get. */
  capabilities(id?: SandboxId): Promise<BuildCapabilities>;
  /**
   * A sandbox to work in. It carries the job's id, so that it is found again whatever happens. When the signal
   * fires before the caller has it, it is ended again.
   */
  create(order: NewSandbox, signal: AbortSignal): Promise<SandboxId>;
  /** Every sandbox of a job that is not at its end. */
  ofJob(org: string, jobId: JobId): Promise<SandboxId[]>;
  /** Writes files below a directory of the home. */
  write(
    org: string,
    id: SandboxId,
    directory: string,
    files: readonly GeneratedFile[],
    signal: AbortSignal,
  ): Promise<void>;
  remove(
    org: string,
    id: SandboxId,
    directory: string,
    paths: readonly string[],
    signal: AbortSignal,
  ): Promise<void>;
  /** All files below a directory of the home, links and special files left out, up to a number of bytes. */
  read(
    org: string,
    id: SandboxId,
    directory: string,
    limits: { readonly count: number; readonly totalBytes: number },
    signal: AbortSignal,
  ): Promise<GeneratedFile[]>;
  run(
    org: string,
    id: SandboxId,
    order: CommandOrder,
    signal: AbortSignal,
  ): Promise<{ readonly exitCode: number }>;
  /**
   * Makes what was worked on into something that serves: with its dev server as a declared service, and without
   * whatever else ran. The sandbox that answers may be another one; then the one given is gone. Where the runtime
   * cannot fork, it is the one given.
   */
  publish(
    order: Omit<NewSandbox, 'from'>,
    id: SandboxId,
    service: Service,
    signal: AbortSignal,
  ): Promise<SandboxId>;

  /** Makes it run, whether it sleeps or not. Some providers reset its lifetime when they do. */
  connect(org: string, id: SandboxId, signal: AbortSignal): Promise<void>;
  setLifetime(org: string, id: SandboxId, seconds: number, signal: AbortSignal): Promise<void>;
  processes(org: string, id: SandboxId, signal: AbortSignal): Promise<readonly number[]>;
  endProcess(org: string, id: SandboxId, pid: number, signal: AbortSignal): Promise<void>;
  /** Starts the declared services afresh. */
  startServices(org: string, id: SandboxId, signal: AbortSignal): Promise<void>;
  /** Confirmed: what it resolves with is sealed. */
  pause(
    org: string,
    id: SandboxId,
    signal: AbortSignal,
  ): Promise<{ readonly checkpointId: CheckpointId | null }>;
  /** Gone afterwards; absent is fine. */
  kill(org: string, id: SandboxId): Promise<void>;
  /** Undefined when there is no such sandbox. */
  find(org: string, id: SandboxId): Promise<SandboxGlance | undefined>;

  urlOf(id: SandboxId, port: number): string;
  /** One request to a port by the way that visitors take, which wakes what sleeps. */
  visit(
    id: SandboxId,
    port: number,
    order: { readonly method: 'GET' | 'HEAD'; readonly path: string; readonly timeoutMs: number },
    signal: AbortSignal,
  ): Promise<Visit>;
}
