/** The door to a sandbox, as far as a pause must close it. The gateway implements it. */
import type { SandboxId } from '@torpor/protocol';

export interface TrafficGate {
  /** From now on new requests are held at the door. */
  close(sandboxId: SandboxId): Promise<void>;
  /** Waits until the requests in flight are done, or the signal fires. */
  drain(sandboxId: SandboxId, signal: AbortSignal): Promise<void>;
  /** Resets every connection into and out of the sandbox: an image cannot hold them. */
  cut(sandboxId: SandboxId): Promise<void>;
  /** Lets held and new requests through again, to whatever the sandbox has become. */
  open(sandboxId: SandboxId): Promise<void>;
}

/** For an engine without a gateway in front. */
export const openGate: TrafficGate = {
  close: async () => {},
  drain: async () => {},
  cut: async () => {},
  open: async () => {},
};
