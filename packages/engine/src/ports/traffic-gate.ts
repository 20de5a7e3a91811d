/** The port to the gate that lets requests into a sandbox. A pause closes the gate. The gateway implements it. */
import type { SandboxId } from '@torpor/protocol';

export interface TrafficGate {
  /** From now on new requests wait at the gate. */
  close(sandboxId: SandboxId): Promise<void>;
  /**
   * Waits until the requests under way, and those that waited before the gate closed, have ended, or the signal fires.
   * Does not wait for streams on which nothing moves.
   */
  drain(sandboxId: SandboxId, signal: AbortSignal): Promise<void>;
  /**
   * Aborts every exchange and resets every connection from the gateway into the sandbox. The runtime may have reset them
   * before the freeze.
   */
  abortExchanges(sandboxId: SandboxId): Promise<void>;
  /** Lets waiting and new requests through again, in whatever state the sandbox is then. */
  open(sandboxId: SandboxId): Promise<void>;
}

/** A gate that is always open, for an engine without a gateway. */
export const openGate: TrafficGate = {
  close: async () => {},
  drain: async () => {},
  abortExchanges: async () => {},
  open: async () => {},
};
