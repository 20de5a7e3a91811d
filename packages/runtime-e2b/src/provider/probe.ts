/** What a provider can do, found out by doing it once with a sandbox that is thrown away. */
import type { Clock } from '@torpor/engine';
import type { Capabilities } from '@torpor/protocol';
import type { Provider, Reached } from './provider.ts';

/** The inside of a sandbox that is being tried. */
export interface ProbeInside {
  /** Starts something that lives in memory only, and writes something that does not. */
  begin(): Promise<void>;
  lives(): Promise<boolean>;
  isWritten(): Promise<boolean>;
  /** Whether somebody listens on the port in the network that it is in. */
  isHeard(port: number): Promise<boolean>;
}

export interface Probe {
  readonly provider: Provider;
  readonly template: string;
  readonly clock: Clock;
  inside(reached: Reached): Promise<ProbeInside>;
  readonly signal: AbortSignal;
}

const MARK = { 'torpor-probe': '1' };
const LOOK_EVERY_MS = 250;
const LOOKS = 40;

export async function probeProvider(probe: Probe): Promise<Capabilities> {
  const { provider, template, signal } = probe;
  const reached = await provider.create(template, MARK, {}, signal);
  const { providerId } = reached;
  try {
    const before = await probe.inside(reached);
    await before.begin();
    // One in whose network the provider's own door is open is not kept away from anything there.
    const isolated = !(await before.isHeard(provider.apiPort()));
    const pause = await tryPause(probe, providerId);
    const snapshots = pause !== 'none' && (await trySnapshot(probe, providerId, pause));
    return {
      pause,
      // A sandbox that sleeps is its own and only checkpoint.
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

/** A provider that refuses, or that says yes and does nothing, cannot pause. */
async function tryPause(
  { provider, clock, inside, signal }: Probe,
  providerId: string,
): Promise<Capabilities['pause']> {
  try {
    await provider.pause(providerId, signal);
    for (let looks = 0; (await provider.stateOf(providerId, signal)) !== 'paused'; looks++) {
      if (looks === LOOKS) return 'none';
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
    const awake = await provider.connect(providerId, 'restore', signal);
    return (await (await inside(awake)).lives()) ? 'memory' : 'files';
  } catch {
    signal.throwIfAborted();
    return 'none';
  }
}

/** A snapshot counts when it can be found again, keeps what a pause keeps, and leaves its sandbox as it was. */
async function trySnapshot(probe: Probe, providerId: string, keeps: 'memory' | 'files'): Promise<boolean> {
  const { provider, inside, signal } = probe;
  // Of its own, so that two who try at once do not take each other's.
  const name = `torpor-probe-${providerId}`;
  let copy: Reached | undefined;
  try {
    const beforehand = await inside(await provider.connect(providerId, 'restore', signal));
    if (keeps === 'files') await beforehand.begin();
    const snapshotId = await provider.snapshot(providerId, name, signal);
    if (!(await provider.snapshotsNamed(name, signal)).includes(snapshotId)) return false;
    if (!(await (await inside(await provider.connect(providerId, 'restore', signal))).lives())) return false;
    copy = await provider.create(snapshotId, MARK, {}, signal);
    const there = await inside(copy);
    return (await there.isWritten()) && (keeps === 'files' || (await there.lives()));
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
