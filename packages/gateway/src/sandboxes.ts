/** What the gateway needs to know of sandboxes and to ask of them; the engine does the rest. */
import type { Address, AgentAddress } from '@torpor/engine';
import type { LostCheckpoint, SandboxId, SandboxState, Service } from '@torpor/protocol';
import type { PreviewRoute } from './route/route.ts';

/** A sandbox as the gateway sees it. All but state, generation and start stay the same for its whole life. */
export interface SandboxFacts {
  readonly id: SandboxId;
  readonly org: string;
  readonly name: string | null;
  readonly state: SandboxState;
  readonly generation: number;
  readonly startedAt: number | null;
  readonly autoResume: boolean;
  readonly preview: 'public' | 'private';
  /** The API through which it was created. */
  readonly dialect: PreviewRoute['dialect'];
  readonly services: readonly Pick<Service, 'name' | 'port'>[];
  /** Why it is lost or has failed. */
  readonly reason: string | null;
  /** The checkpoint that it is lost for. */
  readonly lostCheckpoint: LostCheckpoint | null;
}

/** Failures are `TorporError`s. None of these may hang: whoever implements them bounds them. */
export interface Sandboxes {
  /** As the ledger has it, without a look at the runtime; undefined when there never was such a sandbox. */
  find(id: SandboxId): Promise<SandboxFacts | undefined>;
  /** Resolves when the sandbox runs; joins a resume that is under way. */
  wake(sandbox: SandboxFacts, signal: AbortSignal): Promise<void>;
  /** Where a port can be dialled, or null when nothing of the sandbox listens there. */
  dial(sandbox: SandboxFacts, port: number): Promise<Address | null>;
  agent(sandbox: SandboxFacts): Promise<AgentAddress>;
  /** The ports that something of the sandbox listens on. */
  openPorts(sandbox: SandboxFacts): Promise<readonly number[]>;
  /** Holds a sandbox awake until the function that is returned is called. */
  hold(id: SandboxId): () => void;
}
