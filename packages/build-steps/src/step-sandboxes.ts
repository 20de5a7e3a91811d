/** The port of a build to sandboxes and checkpoints. An implementation ends its calls when the build is given up. */
import type { CheckpointId, Resources, SandboxId } from '@torpor/protocol';

/** What a sandbox of a build starts from. */
export type StepOrigin = { readonly template: string } | { readonly from: CheckpointId };

export interface RunningSandbox {
  readonly id: SandboxId;
  readonly name: string;
}

export interface StepCommand {
  readonly command: string;
  readonly cwd: string;
  /** Undefined: the user of the sandbox. */
  readonly user?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Keeps its output out of the log. */
  readonly quiet?: boolean | undefined;
}

export interface StepSandboxes {
  /** The newest checkpoint of a step with this name. */
  findStep(name: string): Promise<CheckpointId | undefined>;
  /** Limits that are not given are those of the origin, or else of the server. */
  create(origin: StepOrigin, resources?: Resources): Promise<RunningSandbox>;
  /** Runs the command to its end and resolves to its exit code. Its output goes to the log of the build. */
  run(sandbox: RunningSandbox, command: StepCommand): Promise<number>;
  /** As root. */
  write(sandbox: RunningSandbox, path: string, content: AsyncIterable<Uint8Array>): Promise<void>;
  read(sandbox: RunningSandbox, path: string): Promise<Uint8Array>;
  /** Seals a checkpoint that stays for as long as builds may use it. */
  seal(sandbox: RunningSandbox, name: string): Promise<CheckpointId>;
  kill(sandbox: RunningSandbox): Promise<void>;
}

/** Steps that no build has made for this long are removed with their checkpoints. */
export const CACHE_SECONDS = 30 * 24 * 3600;
