/** What a Sandbox resource, its pod and its volume say about an instance. What the cluster does not say is unknown. */
import type { Instance, Observation } from '@torpor/engine';
import { type Pod, podState } from '@torpor/pods';
import type { Parts } from './parts.ts';
import {
  claimNameOf,
  endOf,
  isWantedSuspended,
  POD_ANNOTATION,
  podNameOf,
  type SandboxObject,
  stateOf,
} from './sandbox-object.ts';
import { VOLUME } from './sandbox-objects.ts';
import { isProvedSuspended } from './start.ts';

export async function observeObject(
  parts: Parts,
  instance: Instance,
  signal: AbortSignal,
): Promise<Observation> {
  const object = await parts.objects.find(instance, signal);
  if (object === undefined) return { is: 'gone', files: false, why: 'its Sandbox was deleted' };
  if (object.metadata.deletionTimestamp !== undefined) {
    return { is: 'unknown', why: 'its Sandbox is being deleted' };
  }
  if (stateOf(object) === 'starting') {
    // The volume is as the checkpoint left it, or newer: the next start goes on with it.
    return { is: 'gone', files: false, why: 'its start was not completed', untouched: true };
  }
  if (isWantedSuspended(object)) return observeSuspended(parts, object, signal);
  const pod = await parts.world.pods.find(podNameOf(object), signal);
  const why = whyEnded(object, pod);
  if (why !== undefined) return ended(parts, object, why, signal);
  if (pod === undefined) return { is: 'unknown', why: 'its pod is not known' };
  const state = podState(pod);
  return state.is === 'running' ? { is: 'running' } : { is: 'unknown', why: 'why' in state ? state.why : '' };
}

async function observeSuspended(
  parts: Parts,
  object: SandboxObject,
  signal: AbortSignal,
): Promise<Observation> {
  if (!(await isProvedSuspended(parts, object, signal))) {
    return { is: 'unknown', why: 'its Sandbox is being suspended' };
  }
  if (stateOf(object) === 'frozen') return { is: 'frozen' };
  return ended(parts, object, 'its Sandbox was suspended by somebody else', signal);
}

/** A pod that the controller made in the place of ours has an agent that nobody has set up. */
function whyEnded(object: SandboxObject, pod: Pod | undefined): string | undefined {
  const expected = object.metadata.annotations?.[POD_ANNOTATION];
  if (pod === undefined) return endOf(object) ?? 'its pod was deleted';
  if (pod.metadata.uid !== expected) return 'its pod was deleted, and the controller has made another';
  const state = podState(pod);
  return state.is === 'ended' ? state.why : endOf(object);
}

async function ended(
  { objects }: Parts,
  object: SandboxObject,
  why: string,
  signal: AbortSignal,
): Promise<Observation> {
  const files = await objects.hasVolume(claimNameOf(object, VOLUME), signal);
  return { is: 'gone', files, why: files ? why : `${why}, and so was its volume` };
}
