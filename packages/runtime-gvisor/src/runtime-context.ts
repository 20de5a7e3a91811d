/** What every part of the gVisor runtime works with. */
import type { Clock } from '@torpor/engine';
import type { Layers } from '@torpor/layers';
import type { Refusal, SandboxNetwork } from '@torpor/network';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { RunscBinaries } from './binaries/runsc-binaries.ts';
import type { Cgroups } from './container/cgroups.ts';
import type { BaseSystems } from './guest/base-system.ts';
import type { GuestTools } from './guest/guest-tools.ts';
import type { ReadOnlyView } from './guest/read-only-view.ts';
import type { Images } from './image/images.ts';
import type { InstanceFiles } from './instance/instance-files.ts';
import type { MountNamespace } from './mounts/mount-namespace.ts';
import type { OwnedLayers } from './owned-layers.ts';
import type { Runsc } from './runsc/runsc.ts';

export interface RuntimeContext {
  readonly tag: string;
  /** The directory of everything that this runtime keeps. */
  readonly place: string;
  /** What is known of containers while the machine runs. */
  readonly runDir: string;
  /** Where roots and views of this machine are mounted: not in the host's own namespace. */
  readonly mounts: MountNamespace;
  readonly files: InstanceFiles;
  /** For containers that are nobody's yet. */
  readonly preparedDir: string;
  readonly layers: Layers;
  readonly images: Images;
  readonly owned: OwnedLayers;
  readonly network: SandboxNetwork;
  /** Who is told what the network has refused; changed when somebody listens. */
  readonly refused: { tell: (refusal: Refusal) => void };
  readonly runsc: Runsc;
  /** The programs behind it: one for new sandboxes, and those that earlier ones stay with. */
  readonly binaries: RunscBinaries;
  /** Null where this machine has none to limit with. */
  readonly cgroups: Cgroups | null;
  readonly view: ReadOnlyView;
  readonly base: BaseSystems;
  /** Those that new sandboxes get. */
  readonly tools: GuestTools;
  /** Where all of them are kept. */
  readonly toolsDir: string;
  /** What a memory image depends on, beside its runsc. */
  readonly processor: string;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly report: (what: string, details: Readonly<Record<string, unknown>>) => void;
}
