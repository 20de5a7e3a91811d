/** The gateway's port to the sandboxes; `engine-sandbox-directory.ts` implements it. */
import type { Address, AgentAddress } from '@torpor/engine';
import type { LostCheckpoint, SandboxId, SandboxState, Service } from '@torpor/protocol';
import type { PreviewRoute } from './route/route.ts';

/**
 * A sandbox as the gateway sees it. `id`, `org`, `name`, `autoResume`, `preview`, `requestHost` and `dialect` never
 * change; the other fields are as of the last look.
 */
export interface SandboxInfo {
  readonly id: SandboxId;
  readonly org: string;
  readonly name: string | null;
  readonly state: SandboxState;
  readonly generation: number;
  readonly startedAt: number | null;
  readonly autoResume: boolean;
  readonly preview: 'public' | 'private';
  /** The `Host` that programs get, in which `${PORT}` stands for the port. Absent: the host of the preview. */
  readonly requestHost?: string | undefined;
  /** The API through which the sandbox was created. */
  readonly dialect: PreviewRoute['dialect'];
  readonly services: readonly Pick<Service, 'name' | 'port'>[];
  /** Why the sandbox is lost or has failed. */
  readonly reason: string | null;
  /** The unusable checkpoint that made the sandbox `lost`. */
  readonly lostCheckpoint: LostCheckpoint | null;
}

/** Failures are `TorporError`s. The implementation bounds the time of every call. */
export interface SandboxDirectory {
  /** The sandbox according to the ledger, without asking the runtime; undefined when there never was such a sandbox. */
  find(id: SandboxId): Promise<SandboxInfo | undefined>;
  /** Resolves when the sandbox runs; joins a resume that is under way. */
  wake(sandbox: SandboxInfo, signal: AbortSignal): Promise<void>;
  /** The address of a port, or null when no program in the sandbox listens there. */
  dial(sandbox: SandboxInfo, port: number): Promise<Address | null>;
  agent(sandbox: SandboxInfo): Promise<AgentAddress>;
  /** The ports on which programs in the sandbox listen. */
  openPorts(sandbox: SandboxInfo): Promise<readonly number[]>;
  /** Keeps a sandbox awake until the returned function is called. */
  keepAwake(id: SandboxId): () => void;
}
