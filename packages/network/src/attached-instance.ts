/** The state of one attached instance in memory, which all parts of the network share. */
import type { Socket } from 'node:net';
import type { EgressConnection } from './egress-connection.ts';
import { reset } from './joined-sockets.ts';
import type { Policy } from './policy.ts';
import { ResolvedNames } from './resolved-names.ts';
import { farAddress, type Slot } from './slots.ts';

/** Bytes through the egress, as the sandbox sees them. */
export interface Bytes {
  readonly sent: number;
  readonly received: number;
}

/** Since this process attached the instance. */
export interface Usage extends Bytes {
  readonly connections: number;
}

export class AttachedInstance {
  readonly name: string;
  readonly slot: Slot;
  readonly address: string;
  readonly connections = new Set<EgressConnection>();
  /** To the resolver. */
  readonly lookupStreams = new Set<Socket>();
  readonly resolved = new ResolvedNames();
  policy: Policy;
  /** No new connection is accepted: a checkpoint is being made, or the policy is not known yet. */
  isHeld = false;
  /** This process has told the firewall to refuse new connections, which takes a program. */
  isBlocked = false;
  #ended = { sent: 0, received: 0 };
  #taken = { sent: 0, received: 0 };

  constructor(name: string, slot: Slot, policy: Policy) {
    this.name = name;
    this.slot = slot;
    this.address = farAddress(slot);
    this.policy = policy;
  }

  forget(connection: EgressConnection): void {
    if (!this.connections.delete(connection)) return;
    const { sent, received } = connection.bytes;
    this.#ended = { sent: this.#ended.sent + sent, received: this.#ended.received + received };
  }

  /** Cuts the open connections that the new policy does not allow. */
  setPolicy(policy: Policy): void {
    this.policy = policy;
    for (const connection of [...this.connections]) connection.recheck();
  }

  /** From now on no connection is accepted. Closes those that are open. */
  hold(): void {
    this.isHeld = true;
    for (const connection of [...this.connections]) connection.close();
    for (const stream of this.lookupStreams) reset(stream);
  }

  /** The bytes since the last call. */
  takeBytes(): Bytes {
    const { sent, received } = this.usage();
    const since = { sent: sent - this.#taken.sent, received: received - this.#taken.received };
    this.#taken = { sent, received };
    return since;
  }

  usage(): Usage {
    let { sent, received } = this.#ended;
    for (const { bytes } of this.connections) {
      sent += bytes.sent;
      received += bytes.received;
    }
    return { sent, received, connections: this.connections.size };
  }
}
