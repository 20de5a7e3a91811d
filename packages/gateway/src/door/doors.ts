/** The doors of all sandboxes that anybody goes to, and the engine's hand on them. */
import type { Clock, TrafficGate } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';
import type { Sandboxes } from '../sandboxes.ts';
import type { GatewaySettings } from '../settings.ts';
import { Door, type DoorObserver, type DoorParts } from './door.ts';
import { Holding } from './holding.ts';
import { serverStops } from './refusals.ts';

export interface DoorsParts {
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly observe: DoorObserver;
}

export class Doors implements TrafficGate {
  private readonly parts: DoorParts;
  private readonly doors = new Map<SandboxId, Door>();
  private readonly stopping = new AbortController();
  private readonly overall: Holding;

  constructor(parts: DoorsParts) {
    const { heldOverall, heldBytesOverall } = parts.settings;
    this.overall = new Holding({ count: heldOverall, bytes: heldBytesOverall });
    this.parts = { ...parts, holdingOverall: this.overall, stopping: this.stopping.signal };
  }

  /** How many requests wait, at all doors together. */
  get held(): number {
    return this.overall.held;
  }

  get size(): number {
    return this.doors.size;
  }

  /** The door, if anybody goes to it. */
  peek(id: SandboxId): Door | undefined {
    return this.doors.get(id);
  }

  of(id: SandboxId): Door {
    let door = this.doors.get(id);
    if (door === undefined) {
      door = new Door(id, this.parts, () => this.doors.delete(id));
      this.doors.set(id, door);
    }
    return door;
  }

  async close(id: SandboxId): Promise<void> {
    this.of(id).close();
  }

  async drain(id: SandboxId, signal: AbortSignal): Promise<void> {
    await this.doors.get(id)?.drain(signal);
  }

  async cut(id: SandboxId): Promise<void> {
    this.doors.get(id)?.cut();
  }

  async open(id: SandboxId): Promise<void> {
    this.doors.get(id)?.open();
  }

  /** Lets nobody in any more, and waits for those inside until the signal fires; then they are cut off. */
  async stop(signal: AbortSignal): Promise<void> {
    this.stopping.abort();
    const doors = [...this.doors.values()];
    for (const door of doors) door.refuseAll(serverStops());
    await Promise.all(doors.map((door) => door.drain(signal)));
    for (const door of doors) door.cut();
  }
}
