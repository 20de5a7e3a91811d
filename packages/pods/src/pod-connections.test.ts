import type { Instance } from '@torpor/engine';
import { ManualClock, newInstance, unhurried } from '@torpor/engine/testing';
import { beforeEach, describe, expect, it } from 'vitest';
import type { PodWorld } from './open-pod-world.ts';
import { PodConnections } from './pod-connections.ts';
import { byPodAddress } from './pod-reach.ts';
import type { Pod } from './resources.ts';

const POD: Pod = {
  metadata: { name: 'pod', uid: 'uid' },
  status: { phase: 'Running', podIP: '127.0.0.1' },
};
const CONNECTION = { pod: { name: 'pod', uid: 'uid', ip: '127.0.0.1' }, token: 'token' };

describe('a connection to a pod', () => {
  let clock: ManualClock;
  let tell: (pod: Pod, isDeleted: boolean) => void;
  let connections: PodConnections;
  let looks: number;
  let instance: Instance;
  beforeEach(() => {
    clock = new ManualClock();
    looks = 0;
    instance = newInstance();
    const watch = {
      onChange: (listener: typeof tell) => {
        tell = listener;
      },
    };
    connections = new PodConnections({ clock, watch, reach: byPodAddress } as unknown as PodWorld);
    connections.remember(instance, CONNECTION);
  });

  async function looksOfCall(): Promise<number> {
    const before = looks;
    const find = async () => {
      looks++;
      return POD;
    };
    expect(await connections.to(instance, find, unhurried)).toEqual(CONNECTION);
    return looks - before;
  }

  it('is used without a look at the pod right after a start, and right after an observation', async () => {
    expect(await looksOfCall()).toBe(0);
    clock.advance(1_000);
    expect(await looksOfCall()).toBe(1);
    connections.sawRunning(instance, 'uid');
    expect(await looksOfCall()).toBe(0);
  });

  it('is used only after a look when the watch has told that the pod does not run any more', async () => {
    tell(POD, false);
    expect(await looksOfCall()).toBe(0);
    tell({ ...POD, status: { phase: 'Failed' } }, false);
    expect(await looksOfCall()).toBe(1);
    connections.sawRunning(instance, 'uid');
    tell(POD, true);
    expect(await looksOfCall()).toBe(1);
  });

  it('is used only after a look when another pod was seen', async () => {
    clock.advance(1_000);
    connections.sawRunning(instance, 'another');
    expect(await looksOfCall()).toBe(1);
  });
});
