/** What a provider can do, found out by doing it once with a sandbox that is thrown away. */
import type { Clock } from '@torpor/engine';
import type { Capabilities } from '@torpor/protocol';
import type { Provider } from './provider.ts';

/** The inside of a sandbox that is being tried. */
export interface ProbeInside {
  /** Starts something that lives in memory only. */
  begin(): Promise<void>;
  /** Whether it still lives. */
  lives(): Promise<boolean>;
}

const LOOK_EVERY_MS = 250;
const LOOKS = 40;

export async function probeProvider(
  provider: Provider,
  template: string,
  clock: Clock,
  inside: (reached: Awaited<ReturnType<Provider['create']>>) => Promise<ProbeInside>,
  signal: AbortSignal,
): Promise<Capabilities> {
  const reached = await provider.create(template, { 'torpor-probe': '1' }, {}, signal);
  const { providerId } = reached;
  try {
    const before = await inside(reached);
    await before.begin();
    const pause = await tryPause(provider, providerId, clock, inside, signal);
    return {
      pause,
      // A sandbox that sleeps is its own and only checkpoint.
      replayable: false,
      fork: false,
      snapshotWhileRunning: false,
      pty: true,
      isolated: true,
      customTemplates: false,
    };
  } finally {
    await provider.kill(providerId, signal);
  }
}

/** A provider that refuses, or that says yes and does nothing, cannot pause. */
async function tryPause(
  provider: Provider,
  providerId: string,
  clock: Clock,
  inside: Parameters<typeof probeProvider>[3],
  signal: AbortSignal,
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
