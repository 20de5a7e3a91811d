/**
 * The port to what runs sandboxes. The engine decides what happens and in which order; a runtime only carries it out.
 *
 * Every call on an instance names the sandbox *and* the generation, so that a server that lost its fence can only name an
 * instance that has ended. All calls but `start` may be repeated: the engine repeats them after a crash.
 */
import type {
  Capabilities,
  CheckpointId,
  CheckpointMode,
  EventData,
  Loss,
  Network,
  Resources,
  SandboxId,
  Service,
  TemplateRoot,
} from '@torpor/protocol';
import type { ContentPart, Staging } from './checkpoint-store.ts';
import type { Image } from './image.ts';

/** One start of a sandbox. */
export interface Instance {
  readonly sandboxId: SandboxId;
  readonly generation: number;
}

export type Observation =
  | { readonly is: 'running' }
  | { readonly is: 'frozen' }
  /**
   * The instance is proved absent. `files`: the files that it wrote are still there and can be recovered. `untouched`: the
   * start of the instance did not use its checkpoint up, and cannot do so later.
   */
  | { readonly is: 'gone'; readonly files: boolean; readonly why: string; readonly untouched?: boolean }
  /** The runtime could not answer. Never taken for absence. */
  | { readonly is: 'unknown'; readonly why: string };

/** May be more than the limit for a moment. */
export interface DiskUsage {
  readonly usedBytes: number;
  readonly limitBytes: number;
}

/** A sealed checkpoint as a runtime needs it to start from. */
export interface SealedCheckpoint {
  readonly id: CheckpointId;
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  /** What the runtime recorded when it made the checkpoint. */
  readonly needs: Readonly<Record<string, unknown>>;
  /** The content directory; null when the bytes are kept elsewhere (then `needs` names the place). */
  readonly path: string | null;
}

/** What a capture produced. The engine seals it. */
export interface Captured {
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  readonly needs: Readonly<Record<string, unknown>>;
  /** The parts of the checkpoint that the store should know by name; everything else is the workspace. */
  readonly contents?: readonly ContentPart[];
  /** Of a template: what its root is. */
  readonly templateRoot?: TemplateRoot;
  /** Of a template from an image: the user that commands run as by default. */
  readonly templateUser?: string;
  /** Checkpoints whose bytes this one needs; they are kept as long as this one is. */
  readonly dependsOn: readonly CheckpointId[];
  /** Set when a provider or a volume keeps the bytes: nothing was put into the staging directory. */
  readonly external: {
    readonly location: string;
    readonly bytes: number | null;
    readonly replayable: boolean;
  } | null;
}

/** What a template is made from. */
export interface TemplateSpec {
  readonly name: string;
  /** An archive is an untrusted file on this machine: a tar, plain or compressed. */
  readonly root: /** `previous`: the checkpoint that the template has now. Sandboxes keep using it when they have begun with it. */
    | { readonly kind: 'builtin'; readonly previous: SealedCheckpoint | null }
    | { readonly kind: 'archive'; readonly path: string }
    | { readonly kind: 'image'; readonly image: Image };
  /** Services that run in the sealed template, where the runtime keeps memory. */
  readonly services: readonly Service[];
  readonly env: Readonly<Record<string, string>>;
  /** The user and directory of services. Absent: those of the image, or of the runtime. */
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
  /** Limits while it is made. A restore may set others. */
  readonly resources: Resources;
  /** Called with the current phase, a word or two for people. */
  progress(phase: string): Promise<void>;
}

/** Why an instance is frozen. `snapshot`: the same instance runs on afterwards. */
export type FreezePurpose = 'pause' | 'snapshot';

/** What a sandbox gets at every start. */
export interface StartSpec {
  /** The organisation of the sandbox, for runtimes that keep organisations apart. */
  readonly org: string;
  readonly env: Readonly<Record<string, string>>;
  /** The user and directory of commands that name none. Absent: those of the runtime. */
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
  readonly services: readonly Service[];
  readonly network: Network;
  readonly resources: Resources;
  /** The checkpoint was named as a template, so more sandboxes are likely to start from it. */
  readonly fromTemplate?: boolean;
}

export interface Started {
  /** What was really restored; `memory` only when the processes were. */
  readonly mode: CheckpointMode;
  readonly lost: readonly Loss[];
  /**
   * Names of services that were not started, because the restored memory shows that they had ended by themselves with exit
   * code 0. Absent: every service runs.
   */
  readonly succeeded?: readonly string[];
  /** An instance that was kept in memory went on: the start has read nothing of the checkpoint. */
  readonly adopted?: true;
}

/** An address on this host to connect to. */
export type Address = { readonly socketPath: string } | { readonly host: string; readonly port: number };

/** How to reach the agent in an instance. The token changes with every start. */
export interface AgentAddress {
  readonly address: Address;
  readonly token: string;
}

/** A connection that the network policy of an instance refused. */
export type Refusal = EventData<'network.refused'>;

/** Whether the memory part of a checkpoint can be used on this machine now. Faults of the files are thrown. */
export type MemoryVerdict = { readonly usable: true } | { readonly usable: false; readonly why: string };

/** `why` is for people; null when the reason is not known any more. */
export type Warmth = { readonly warm: true } | { readonly warm: false; readonly why: string | null };

/** Bytes between an instance and the outside, from the instance's point of view. */
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
  /** The memory limit of a sandbox whose request sets none; absent where memory is not limited. */
  readonly defaultMemoryMb?: number;
  /**
   * The instances run at an API server or a provider that every node of a cluster reaches. Such a sandbox changes its node
   * without being stopped, `list` names the instances of all nodes, and the end of a node's lease ends none of them.
   */
  readonly isShared?: true;
  capabilities(): Capabilities;
  /**
   * What a memory image that is made here needs of a machine. Machines with the same text can restore each other's images.
   * Absent where images need nothing, or where there are none.
   */
  fingerprint?(): string;

  /**
   * Makes the first checkpoint of a template in the given staging directory. Refuses what the runtime cannot make
   * (`capability_unsupported`) before it does anything. When the call ends, with or without success, none of its
   * processes run.
   */
  prepareTemplate(spec: TemplateSpec, staging: Staging, signal: AbortSignal): Promise<Captured>;

  /**
   * Whether a built-in template prepared now would differ from this one, because the machine or the runtime has changed.
   * Absent where that cannot happen.
   */
  isOutdated?(template: SealedCheckpoint): Promise<boolean>;

  /**
   * Starts an instance from a checkpoint and resolves when the instance is ready. After a throw the instance may or may
   * not exist: the engine destroys it.
   */
  start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started>;

  observe(instance: Instance, signal: AbortSignal): Promise<Observation>;

  /** Throws `transitioning` when the instance is frozen, and `unreachable` when there is no agent to talk to. */
  agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress>;
  /** Where to connect to a port of the sandbox; null when no process *of this sandbox* listens on it. */
  dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null>;

  /**
   * The disk space that a running instance uses, as its limit counts it. The figure may be some seconds old. Absent where
   * disk space is not limited.
   */
  diskUsage?(instance: Instance, signal: AbortSignal): Promise<DiskUsage>;

  /** Throws when the runtime cannot enforce this policy. The engine calls it before any effect. */
  checkNetwork(network: Network): void;
  /** Changes the network policy of a running instance, from now on. */
  setNetwork(instance: Instance, network: Network, signal: AbortSignal): Promise<void>;
  /** Reports connections that were refused, a bounded number of them; absent where nothing is ever refused. */
  onRefusal?(listener: (instance: Instance, refusal: Refusal) => void): void;

  /**
   * The bytes that instances have exchanged with the outside since the last call, including instances that were destroyed
   * since; absent where the runtime does not count them.
   */
  takeEgress?(): readonly Egress[];

  /**
   * Reports an instance that has ended without `destroy`, so that the engine learns of it before the next observation.
   * Some ends may go unreported; absent where the runtime never notices an end.
   */
  onEnded?(listener: (instance: Instance) => void): void;

  /** Writes dirty data back while the sandbox runs, so that the freeze is short. */
  presync(instance: Instance, signal: AbortSignal): Promise<void>;
  /** A runtime for which the purpose makes no difference ignores it. The default is `pause`. */
  freeze(instance: Instance, signal: AbortSignal, purpose?: FreezePurpose): Promise<void>;
  /** Captures a frozen instance. The instance stays frozen and intact, also after a failure. */
  capture(instance: Instance, mode: CheckpointMode, staging: Staging, signal: AbortSignal): Promise<Captured>;
  /**
   * Lets a frozen instance run on. A running instance is left alone. `sealed` is the checkpoint that this run has sealed, or
   * null. What the instance writes after the thaw must not change the files of that checkpoint. A runtime whose instance
   * would still write to sealed files (gVisor, which has no `snapshotWhileRunning`) throws `conflict`.
   */
  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void>;

  /** Captures the files that an ended instance has left behind. */
  recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured>;

  /**
   * Ends every instance of the sandbox up to this generation and frees its resources, except sealed checkpoints.
   *
   * With `keep`, the runtime may keep one of these instances in memory, as a cache of the sealed checkpoint `keep`:
   * - The instance is frozen and was captured for that checkpoint.
   * - `list` leaves it out. `observe` may answer `frozen` or `gone`.
   * - It stays until a start of the sandbox adopts or ends it, a call without `keep` or with another checkpoint ends it, or
   *   the runtime needs its memory.
   */
  destroy(upTo: Instance, signal: AbortSignal, keep?: CheckpointId): Promise<void>;

  /** Whether a start of the sandbox from this checkpoint would adopt an instance; absent where none is ever kept. */
  warmth?(sandboxId: SandboxId, checkpoint: CheckpointId): Warmth;

  /** Lists every instance of which the runtime has anything, so that instances without an owner are found. */
  list(signal: AbortSignal): AsyncIterable<Instance>;

  /**
   * Checks quickly whether the memory of the checkpoint can be used here, before a start and after a seal. Throws the
   * checkpoint_* errors only for what a start from files needs, so that damaged memory never makes files unusable.
   */
  checkUsable(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict>;
  /** Slow check of the contents of what is kept outside the checkpoint store. Throws as `checkUsable` does. */
  verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void>;
  /** Frees what is kept outside the checkpoint store. Succeeds when nothing is there. */
  discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void>;
  /**
   * Gives up what was made in advance for starts from the checkpoint, because its bytes are about to leave this machine.
   * Absent: nothing is made in advance.
   */
  releasePrepared?(checkpoint: CheckpointId): Promise<void>;
}
