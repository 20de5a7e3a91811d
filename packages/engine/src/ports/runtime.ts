/**
 * What runs sandboxes. The engine decides what happens and in which order; a runtime only does it.
 *
 * Every effect is named by sandbox *and* generation, so that an owner who slept through a change can
 * only name something dead. All calls but `start` may be repeated: after a crash the engine does so.
 */
import type {
  Capabilities,
  CheckpointId,
  EventData,
  Loss,
  Network,
  Resources,
  SandboxId,
  Service,
} from '@torpor/protocol';
import type { Staging } from './checkpoint-store.ts';

/** One start of a sandbox. */
export interface Instance {
  readonly sandboxId: SandboxId;
  readonly generation: number;
}

export type Observation =
  | { readonly is: 'running' }
  | { readonly is: 'frozen' }
  /**
   * Proved absent. `files` says whether what it had written is still there and can be salvaged; `untouched`, of one
   * that was being started, that its checkpoint is as it was and stays so, also should that start still come.
   */
  | { readonly is: 'gone'; readonly files: boolean; readonly why: string; readonly untouched?: boolean }
  /** The question could not be answered. Never read as absence. */
  | { readonly is: 'unknown'; readonly why: string };

/** A sealed checkpoint as a runtime needs it to start from. */
export interface SealedCheckpoint {
  readonly id: CheckpointId;
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  /** What the runtime wrote down when it made the checkpoint. */
  readonly needs: Readonly<Record<string, unknown>>;
  /** Where the bytes lie; null when the checkpoint is kept elsewhere (`needs` then names it). */
  readonly path: string | null;
}

/** What a capture produced, to be sealed by the engine. */
export interface Captured {
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  readonly needs: Readonly<Record<string, unknown>>;
  /** Checkpoints whose bytes this one stands on; they are kept as long as it is. */
  readonly dependsOn: readonly CheckpointId[];
  /** Kept by a provider or in a volume: nothing was put into the staging directory. */
  readonly external: {
    readonly location: string;
    readonly bytes: number | null;
    readonly replayable: boolean;
  } | null;
}

/** What a template is to be made from. */
export interface TemplateSpec {
  readonly name: string;
  /** An archive is a file of this machine, made by strangers: a tar, plain or packed. */
  readonly root: { readonly kind: 'builtin' } | { readonly kind: 'archive'; readonly path: string };
  /** Run when it is sealed, where the runtime keeps memory. */
  readonly services: readonly Service[];
  readonly env: Readonly<Record<string, string>>;
  /** Told how far it has come, in a word or two for people. */
  progress(phase: string): Promise<void>;
}

/** What an instance is frozen for: to end as a checkpoint, or to go on beside one. */
export type FreezePurpose = 'pause' | 'snapshot';

/** What a sandbox is given at every start. */
export interface StartSpec {
  readonly env: Readonly<Record<string, string>>;
  readonly services: readonly Service[];
  readonly network: Network;
  readonly resources: Resources;
}

export interface Started {
  /** What really came back; `memory` only when the processes did. */
  readonly kind: 'memory' | 'files';
  readonly lost: readonly Loss[];
}

/** Something on this host that can be dialled. */
export type Address = { readonly socketPath: string } | { readonly host: string; readonly port: number };

/** How to talk to the agent inside an instance. The token changes with every start. */
export interface AgentAddress {
  readonly address: Address;
  readonly token: string;
}

/** What was kept from an instance by its network policy. */
export type Refusal = EventData<'network.refused'>;

/** Whether the memory part of a checkpoint can be used here and now. Files are checked by throwing. */
export type MemoryVerdict = { readonly usable: true } | { readonly usable: false; readonly why: string };

/** Bytes between an instance and the outside, as the instance sees it. */
export interface Egress {
  readonly instance: Instance;
  readonly sent: number;
  readonly received: number;
}

export interface Runtime {
  readonly name: string;
  /**
   * Names at the top of a checkpoint's content directory that a start from files does not read. Damage to them is
   * damage to the memory; damage to anything else is damage to the files.
   */
  readonly memoryEntries: readonly string[];
  /** The memory that a sandbox may use when its request does not say; absent where memory is not limited. */
  readonly defaultMemoryMb?: number;
  capabilities(): Capabilities;

  /**
   * Makes the first checkpoint of a template, in the staging directory it is given. Refuses what it cannot make
   * (`capability_unsupported`) before it does anything. When it has ended, well or not, nothing of it runs.
   */
  prepareTemplate(order: TemplateSpec, staging: Staging, signal: AbortSignal): Promise<Captured>;

  /**
   * Whether a built-in template that was prepared now would differ from this one, because the machine or the runtime has
   * changed. Absent where that cannot happen.
   */
  isOutdated?(template: SealedCheckpoint): Promise<boolean>;

  /**
   * Starts an instance from a checkpoint and resolves when it is ready for work. A throw means that
   * the instance may or may not exist: the engine destroys it.
   */
  start(
    instance: Instance,
    from: SealedCheckpoint,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started>;

  observe(instance: Instance, signal: AbortSignal): Promise<Observation>;

  /** Throws `transitioning` when the instance is frozen, and `unreachable` when there is no agent to talk to. */
  agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress>;
  /** Where a port of the sandbox can be dialled; null when no process *of this sandbox* listens on it. */
  dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null>;

  /** Throws when the runtime cannot understand or keep such a policy, for those who have not done anything yet. */
  checkNetwork(network: Network): void;
  /** Changes what a running instance may reach, from now on. */
  setNetwork(instance: Instance, network: Network, signal: AbortSignal): Promise<void>;
  /** Tells what instances were refused, a bounded number of times; absent where nothing is ever refused. */
  onRefusal?(listener: (instance: Instance, refusal: Refusal) => void): void;

  /**
   * The bytes that instances have exchanged with the outside since the last call, also those of instances that were
   * destroyed since; absent where nobody counts them.
   */
  takeEgress?(): readonly Egress[];

  /**
   * Tells when an instance has ended that nobody destroyed, so that this is known before the next observation. Some ends
   * may go untold; absent where the runtime never notices any.
   */
  onEnded?(listener: (instance: Instance) => void): void;

  /** Writes dirty data back while the sandbox runs, so that the freeze is short. */
  presync(instance: Instance, signal: AbortSignal): Promise<void>;
  /** Where the purpose makes no difference it is not looked at; without one it is a pause. */
  freeze(instance: Instance, signal: AbortSignal, purpose?: FreezePurpose): Promise<void>;
  /** Captures a frozen instance. The instance stays frozen and whole, whatever happens. */
  capture(
    instance: Instance,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured>;
  /**
   * Lets a frozen instance go on. With `sealed`, what it had written is part of that checkpoint now
   * and must not change any more: it goes on over fresh ground. A running instance is left alone.
   */
  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void>;

  /** Captures the files that an instance that is gone has left behind. */
  recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured>;

  /** Ends every instance of the sandbox up to this generation and frees what they held, except sealed checkpoints. */
  destroy(upTo: Instance, signal: AbortSignal): Promise<void>;

  /** Every instance the runtime has anything of, for finding what nobody owns. */
  list(signal: AbortSignal): AsyncIterable<Instance>;

  /**
   * Quick check before a start of what lies outside the checkpoint store. Throws the checkpoint_* errors only for
   * what a start from files needs, so that damaged memory never makes files unusable.
   */
  inspect(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict>;
  /** Slow check of the contents of what lies outside the checkpoint store. Throws as `inspect` does. */
  verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void>;
  /** Frees what lies outside the checkpoint store. Absent is fine. */
  discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void>;
}
