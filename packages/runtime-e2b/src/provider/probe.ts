/** Finds out the capabilities of a provider by using them once with a temporary sandbox. */
import type { Clock } from '@torpor/engine';
import type { Capabilities, CheckpointMode } from '@torpor/protocol';
import type { Connection, Provider } from './provider.ts';

/** What the probe does in the temporary sandbox. */
export interface ProbedSandbox {
  /** Starts a process, and writes a file. */
  prepare(): Promise<void>;
  hasProcess(): Promise<boolean>;
  hasFile(): Promise<boolean>;
  /** Whether any process in the network of the sandbox listens on the port. */
  isListening(port: number): Promise<boolean>;
}

export interface Probe {
  readonly provider: Provider;
  readonly template: string;
  readonly clock: Clock;
  open(connection: Connection): Promise<ProbedSandbox>;
  readonly signal: AbortSignal;
}

const METADATA = { 'torpor-probe': '1' };
const POLL_MS = 250;
const MAX_POLLS = 40;

export async function probeProvider(probe: Probe): Promise<Capabilities> {
  const { provider, template, signal } = probe;
  const connection = await provider.create(template, METADATA, {}, signal);
  const { providerId } = connection;
  try {
    const before = await probe.open(connection);
    await before.prepare();
    // A sandbox in whose network the provider's own port listens is not isolated from the provider.
    const isolated = !(await before.isListening(provider.apiPort()));
    const pause = await tryPause(probe, providerId);
    const snapshots = pause !== 'none' && (await trySnapshot(probe, providerId, pause));
    return {
      pause,
      // The next start uses a paused sandbox up.
      replayable: false,
      fork: snapshots,
      snapshotWhileRunning: snapshots,
      pty: true,
      isolated,
      customTemplates: false,
    };
  } finally {
    await provider.kill(providerId, signal);
  }
}

/** A provider that refuses, or that accepts and does nothing, cannot pause. */
async function tryPause(
  { provider, clock, open, signal }: Probe,
  providerId: string,
): Promise<Capabilities['pause']> {
  try {
    await provider.pause(providerId, signal);
    for (let polls = 0; (await provider.stateOf(providerId, signal)) !== 'paused'; polls++) {
      if (polls === MAX_POLLS) return 'none';
      await clock.sleep(POLL_MS, signal);
    }
    const resumed = await provider.connect(providerId, 'restore', signal);
    return (await (await open(resumed)).hasProcess()) ? 'memory' : 'files';
  } catch {
    signal.throwIfAborted();
    return 'none';
  }
}

/** A snapshot is usable when it can be found again, keeps what a pause keeps, and does not change its sandbox. */
async function trySnapshot(probe: Probe, providerId: string, keeps: CheckpointMode): Promise<boolean> {
  const { provider, open, signal } = probe;
  // Unique, so that two probes at the same time do not use each other's snapshots.
  const name = `torpor-probe-${providerId}`;
  let copy: Connection | undefined;
  try {
    const original = await open(await provider.connect(providerId, 'restore', signal));
    if (keeps === 'files') await original.prepare();
    const snapshotId = await provider.snapshot(providerId, name, signal);
    if (!(await provider.snapshotsNamed(name, signal)).includes(snapshotId)) return false;
    if (!(await (await open(await provider.connect(providerId, 'restore', signal))).hasProcess()))
      return false;
    copy = await provider.create(snapshotId, METADATA, {}, signal);
    const copied = await open(copy);
    return (await copied.hasFile()) && (keeps === 'files' || (await copied.hasProcess()));
  } catch {
    signal.throwIfAborted();
    return false;
  } finally {
    if (copy !== undefined) await provider.kill(copy.providerId, signal);
    await deleteAll(provider, name, signal).catch(() => {});
  }
}

async function deleteAll(provider: Provider, name: string, signal: AbortSignal): Promise<void> {
  for (const snapshotId of await provider.snapshotsNamed(name, signal)) {
    await provider.deleteSnapshot(snapshotId, signal);
  }
}
