/** Where sandboxes live, as this node has last read it. Only what lives elsewhere is remembered, and only for a moment. */
import type { Clock, Location, NodeDirectory } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';

/** The directory of nodes, as far as the hop needs it. */
export type NodeLookup = Pick<NodeDirectory, 'self' | 'locate' | 'nodeByName'>;

/** A wrong answer is corrected by the other node, so this may be long against a request and short for people. */
const KEPT_MS = 2_000;
const MAX_KEPT = 10_000;

export class Locations {
  readonly #nodes: NodeLookup;
  readonly #clock: Clock;
  readonly #known = new Map<SandboxId, { readonly location: Location; readonly until: number }>();

  constructor(nodes: NodeLookup, clock: Clock) {
    this.#nodes = nodes;
    this.#clock = clock;
  }

  /** May be wrong for a moment. The answer "here" is never remembered: only the database knows it. */
  remembered(id: SandboxId): Location | undefined {
    const known = this.#known.get(id);
    return known !== undefined && known.until > this.#clock.monotonic() ? known.location : undefined;
  }

  async lookUp(id: SandboxId): Promise<Location> {
    this.#known.delete(id);
    const location = await this.#nodes.locate(id);
    if (location.is === 'elsewhere') this.#remember(id, location);
    return location;
  }

  forget(id: SandboxId): void {
    this.#known.delete(id);
  }

  #remember(id: SandboxId, location: Location): void {
    this.#known.set(id, { location, until: this.#clock.monotonic() + KEPT_MS });
    if (this.#known.size <= MAX_KEPT) return;
    // A map lists what was added first, and those were added first.
    const [oldest] = this.#known.keys();
    if (oldest !== undefined) this.#known.delete(oldest);
  }
}
