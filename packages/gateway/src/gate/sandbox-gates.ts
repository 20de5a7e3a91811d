/** The gates of all sandboxes with traffic, as the engine closes and opens them. */
import type { Clock, TrafficGate } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';
import type { SandboxDirectory } from '../sandbox-directory.ts';
import type { GatewaySettings } from '../settings.ts';
import { QueuedRequestBudget } from './queued-request-budget.ts';
import { serverStopping } from './refusals.ts';
import { type GateObserver, SandboxGate, type SandboxGateParts } from './sandbox-gate.ts';

export interface SandboxGatesParts {
  readonly sandboxes: SandboxDirectory;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly observe: GateObserver;
}

export class SandboxGates implements TrafficGate {
  readonly #parts: SandboxGateParts;
  readonly #gates = new Map<SandboxId, SandboxGate>();
  readonly #stopping = new AbortController();

  constructor(parts: SandboxGatesParts) {
    const { heldOverall, heldBytesOverall } = parts.settings;
    const overallBudget = new QueuedRequestBudget({ count: heldOverall, bytes: heldBytesOverall });
    this.#parts = { ...parts, overallBudget, stopping: this.#stopping.signal };
  }

  /** How many requests are queued at all gates together. */
  get queuedRequests(): number {
    return this.#parts.overallBudget.count;
  }

  /** How many gates exist. */
  get size(): number {
    return this.#gates.size;
  }

  get isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** The gate, if the sandbox has traffic. */
  findGate(id: SandboxId): SandboxGate | undefined {
    return this.#gates.get(id);
  }

  gateFor(id: SandboxId): SandboxGate {
    let gate = this.#gates.get(id);
    if (gate === undefined) {
      gate = new SandboxGate(id, this.#parts, () => this.#gates.delete(id));
      this.#gates.set(id, gate);
    }
    return gate;
  }

  async close(id: SandboxId): Promise<void> {
    this.gateFor(id).close();
  }

  async drain(id: SandboxId, signal: AbortSignal): Promise<void> {
    await this.#gates.get(id)?.drain(signal);
  }

  async abortExchanges(id: SandboxId): Promise<void> {
    this.#gates.get(id)?.abortExchanges();
  }

  async open(id: SandboxId): Promise<void> {
    this.#gates.get(id)?.open();
  }

  /** Refuses queued and new requests, and aborts active exchanges that have not ended when the signal fires. */
  async stop(signal: AbortSignal): Promise<void> {
    this.#stopping.abort();
    const gates = [...this.#gates.values()];
    for (const gate of gates) gate.refuseAll(serverStopping());
    await Promise.all(gates.map((gate) => gate.drain(signal)));
    for (const gate of gates) gate.abortExchanges();
  }
}
