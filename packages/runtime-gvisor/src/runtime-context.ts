import type { Clock, FaultPoints, Instance } from '@torpor/engine';
import type { LayerStore, Layers } from '@torpor/layers';
import type { Refusal, SandboxNetwork } from '@torpor/network';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { MachineBase } from './base/build-base.mjs';
import type { RunscBinaries } from './binaries/runsc-binaries.ts';
import type { MemoryBudget } from './caches/memory-budget.ts';
import type { Cgroups } from './container/cgroups.ts';
import type { BaseSystemCache } from './guest/base-system.ts';
import type { GuestTools } from './guest/guest-tools.ts';
import type { ReadOnlyBinds } from './guest/read-only-binds.ts';
import type { Images } from './image/images.ts';
import type { InstanceFiles } from './instance/instance-files.ts';
import type { DiskProjects } from './limits/disk-projects.ts';
import type { PinnedMountNamespace } from './mounts/mount-namespace.ts';
import type { Runsc } from './runsc/runsc.ts';

/** What every part of the gVisor runtime works with. */
export interface RuntimeContext {
  /** Identifies this server in the names of containers, namespaces and control groups. A tag of a process is another thing. */
  readonly serverTag: string;
  /** `<data dir>/gvisor`: everything that this runtime stores. */
  readonly directory: string;
  /** Below /run: state that lives until the host reboots. */
  readonly runDir: string;
  /** The mount namespace in which roots and read-only binds of the host are mounted. It is not the host's own. */
  readonly mounts: PinnedMountNamespace;
  readonly files: InstanceFiles;
  /** The directories of containers, whether an instance has taken them or not. */
  readonly unassignedDir: string;
  /** Says which layers and programs are kept; `layers` are the layers themselves. */
  readonly layerStore: LayerStore;
  readonly layers: Layers;
  /** Unregisters this runtime as a source of layers in use. */
  readonly leaveLayerStore: () => void;
  readonly images: Images;
  readonly network: SandboxNetwork;
  /** Is told what the network has refused. The runtime sets the listener when its caller asks for refusals. */
  readonly refusals: { listener: (refusal: Refusal) => void };
  /** Finds the instance that a container belongs to. The runtime sets it before any instance starts. */
  readonly owners: { find: (container: string) => Promise<Instance | undefined> };
  readonly runsc: Runsc;
  /** The runsc programs: one for new sandboxes, and those that existing sandboxes and checkpoints need. */
  readonly binaries: RunscBinaries;
  /** Null when the host has no control groups that can be used. */
  readonly cgroups: Cgroups | null;
  /** Null when the file system of the data directory has no project quotas. */
  readonly diskProjects: DiskProjects | null;
  readonly readOnlyBinds: ReadOnlyBinds;
  /** The host's system directories, for sandboxes that see them. */
  readonly base: BaseSystemCache;
  /** Finds the root of `base` that was made on this host. Null: `base` is a view of the host. */
  readonly ownBase: (() => MachineBase | undefined) | null;
  /** The tools for new sandboxes. */
  readonly tools: GuestTools;
  /** Identifies the kind of processor. A memory image depends on it, and on the runsc that wrote the image. */
  readonly processor: string;
  /** The budget of everything in memory that can be dropped without losing anything. */
  readonly warmMemory: MemoryBudget;
  /** The digests of programs that could not let a stopped sandbox go on. */
  readonly cannotContinue: Set<string>;
  /** Names `runtime.…`: places at which a test kills the server. */
  readonly faults: FaultPoints;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly report: (what: string, details: Readonly<Record<string, unknown>>) => void;
}
