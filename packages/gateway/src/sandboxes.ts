/** The gateway's port to the sandboxes. The engine implements it. */
import type { Address, AgentAddress } from '@torpor/engine';
import type { LostCheckpoint, SandboxId, SandboxState, Service } from '@torpor/protocol';
import type { PreviewRoute } from './route/route.ts';

/** A sandbox as the gateway sees it. All fields but `state`, `generation` and `startedAt` never change. */
export interface SandboxFacts {
  readonly id: SandboxId;
  readonly org: string;
  readonly name: string | null;
  readonly state: SandboxState;
  readonly generation: number;
  readonly startedAt: number | null;
  readonly autoResume: boolean;
  readonly preview: 'public' | 'private';
  /** The API through which the sandbox was created. */
  readonly dialect: PreviewRoute['dialect'];
  readonly services: readonly Pick<Service, 'name' | 'port'>[];
  /** Why the sandbox is lost or has failed. */
  readonly reason: string | null;
  /** The unusable checkpoint that made the sandbox `lost`. */
  readonly lostCheckpoint: LostCheckpoint | null;
}

/** Failures are `TorporError`s. The implementation bounds the time of every call. */
export interface Sandboxes {
  /** The sandbox according to the ledger, without asking the runtime; undefined when there never was such a sandbox. */
  find(id: SandboxId): Promise<SandboxFacts | undefined>;
  /** Resolves when the sandbox runs; joins a resume that is under way. */
  wake(sandbox: SandboxFacts, signal: AbortSignal): Promise<void>;
  /** The address of a port, or null when no program in the sandbox listens there. */
  dial(sandbox: SandboxFacts, port: number): Promise<Address | null>;
  agent(sandbox: SandboxFacts): Promise<AgentAddress>;
  /** The ports on which programs in the sandbox listen. */
  openPorts(sandbox: SandboxFacts): Promise<readonly number[]>;
  /** Keeps a sandbox awake until the returned function is called. */
  hold(id: SandboxId): () => void;
}
