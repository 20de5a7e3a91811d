/**
 * The port from builds to sandboxes. The server implements it with the engine; tests implement it with a provider that
 * fails on demand.
 *
 * A sandbox that is lost for good is reported by a `TorporError` about the sandbox or its checkpoints that is not
 * retryable (`preview/permanent-failure.ts` has the codes). Every other error may be temporary.
 */
import type { Capabilities, CheckpointId, JobId, SandboxId, SandboxState, Service } from '@torpor/protocol';
import type { GeneratedFile } from '../runners/generated-files.ts';

export interface NewSandbox {
  readonly org: string;
  readonly jobId: JobId;
  readonly lifetimeSeconds: number;
  /** Fork this sandbox, with its files. Only where the runtime can fork. Without it the new sandbox is empty. */
  readonly from?: SandboxId | undefined;
}

export interface SandboxCommand {
  readonly command: string;
  readonly cwd: string;
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly output: (channel: 'stdout' | 'stderr', text: string) => void;
}

export interface SandboxSummary {
  readonly state: SandboxState;
  readonly checkpointId: CheckpointId | null;
  /** When its lifetime ends; null while it does not run. */
  readonly endsAt: number | null;
  /** Why it is in this state, if known. */
  readonly reason: string | null;
  /**
   * Known damage of a paused sandbox's checkpoint; null when none is known. `sure`: a start has failed for this reason
   * and will fail again.
   */
  readonly damage: { readonly sure: boolean; readonly reason: string } | null;
}

export interface PreviewResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** The runtime's capabilities that matter to a build. */
export type BuildCapabilities = Pick<Capabilities, 'pause' | 'fork'>;

export interface BuildSandboxes {
  /** Capabilities of this sandbox's runtime, or of the runtime for new sandboxes. */
  capabilities(id?: SandboxId): Promise<BuildCapabilities>;
  /**
   * Creates a sandbox that carries the job's id, so that `ofJob` finds it after a crash. When the signal fires before
   * this resolves, the sandbox is killed again.
   */
  create(options: NewSandbox, signal: AbortSignal): Promise<SandboxId>;
  /** All sandboxes of a job that have not ended. */
  ofJob(org: string, jobId: JobId): Promise<SandboxId[]>;
  /** Writes files below a directory in the home. */
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
  /** Reads all regular files below a directory in the home, within the limits. Skips links and special files. */
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
    command: SandboxCommand,
    signal: AbortSignal,
  ): Promise<{ readonly exitCode: number }>;
  /**
   * Turns the build sandbox into a preview: with the dev server as a declared service, and without any other process.
   * The preview may be another sandbox; then the given one is gone. Where the runtime cannot fork, the preview is the
   * given sandbox.
   */
  publish(
    options: Omit<NewSandbox, 'from'>,
    id: SandboxId,
    service: Service,
    signal: AbortSignal,
  ): Promise<SandboxId>;

  /** Resumes the sandbox if it is paused. Some providers reset its lifetime. */
  connect(org: string, id: SandboxId, signal: AbortSignal): Promise<void>;
  setLifetime(org: string, id: SandboxId, seconds: number, signal: AbortSignal): Promise<void>;
  processes(org: string, id: SandboxId, signal: AbortSignal): Promise<readonly number[]>;
  endProcess(org: string, id: SandboxId, pid: number, signal: AbortSignal): Promise<void>;
  /** Restarts the declared services. */
  startServices(org: string, id: SandboxId, signal: AbortSignal): Promise<void>;
  /** Resolves when the checkpoint is sealed. */
  pause(
    org: string,
    id: SandboxId,
    signal: AbortSignal,
  ): Promise<{ readonly checkpointId: CheckpointId | null }>;
  /**
   * Whether a call may have failed because the sandbox moves to another node, or because its node is away. Never on a server that
   * is alone.
   */
  mayMove(id: SandboxId): Promise<boolean>;
  /** Kills the sandbox; does nothing when it does not exist. */
  kill(org: string, id: SandboxId): Promise<void>;
  /** Undefined when there is no such sandbox. */
  find(org: string, id: SandboxId): Promise<SandboxSummary | undefined>;

  urlOf(id: SandboxId, port: number): string;
  /** Sends one request through the gateway, as clients do. It resumes a paused sandbox. */
  requestPreview(
    id: SandboxId,
    port: number,
    request: { readonly method: 'GET' | 'HEAD'; readonly path: string; readonly timeoutMs: number },
    signal: AbortSignal,
  ): Promise<PreviewResponse>;
}
