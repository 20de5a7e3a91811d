/** What the runtime has for each namespace. */
import type { PodConnections, PodWorld } from '@torpor/pods';
import type { SandboxObjects } from './sandbox-objects.ts';
import type { WarmPool } from './warm-pool.ts';

export interface Parts {
  readonly world: PodWorld;
  readonly objects: SandboxObjects;
  readonly connections: PodConnections;
  /** Undefined when no warm pool is configured. */
  readonly pool: WarmPool | undefined;
}
