/** The doors of all sandboxes that anybody goes to, and the engine's hand on them. */
import type { Clock, TrafficGate } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';
import type { Sandboxes } from '../sandboxes.ts';
import type { GatewaySettings } from '../settings.ts';
import { HeldRequestBudget } from './held-request-budget.ts';
import { serverStopping } from './refusals.ts';
import { type GateObserver, SandboxGate, type SandboxGateParts } from './sandbox-gate.ts';

export interface SandboxGatesParts {
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly observe: GateObserver;
}

export class SandboxGates implements TrafficGate {
  private readonly parts: SandboxGateParts;
  private readonly doors = new Map<SandboxId, SandboxGate>();
  private readonly stopping = new AbortController();
  private readonly overall: HeldRequestBudget;

  constructor(parts: SandboxGatesParts) {
    const { heldOverall, heldBytesOverall } = parts.settings;
    this.overall = new HeldRequestBudget({ count: heldOverall, bytes: heldBytesOverall });
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
  peek(id: SandboxId): SandboxGate | undefined {
    return this.doors.get(id);
  }

  of(id: SandboxId): SandboxGate {
    let door = this.doors.get(id);
    if (door === undefined) {
      door = new SandboxGate(id, this.parts, () => this.doors.delete(id));
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
    for (const door of doors) door.refuseAll(serverStopping());
    await Promise.all(doors.map((door) => door.drain(signal)));
    for (const door of doors) door.cut();
  }
}
