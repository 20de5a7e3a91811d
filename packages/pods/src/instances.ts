/** The instances that objects of the cluster belong to. */
import type { Instance } from '@torpor/engine';
import { instanceOf, objectName } from './labels.ts';
import type { PodWorlds } from './open-pod-world.ts';
import { podState } from './pod-state.ts';
import type { Metadata } from './resources.ts';

/** Each instance once, however many of the objects belong to it. */
export function instancesOf(objects: readonly { readonly metadata: Metadata }[]): readonly Instance[] {
  const found = new Map<string, Instance>();
  for (const { metadata } of objects) {
    const instance = instanceOf(metadata);
    if (instance !== undefined) found.set(objectName(instance), instance);
  }
  return [...found.values()];
}

/** Calls the listener when the pod of an instance was deleted or has ended. */
export function onInstanceEnded({ all }: PodWorlds, listener: (instance: Instance) => void): void {
  for (const { watch } of all) {
    watch.onChange((pod, isDeleted) => {
      const instance = instanceOf(pod.metadata);
      if (instance !== undefined && (isDeleted || podState(pod).is === 'ended')) listener(instance);
    });
  }
}
