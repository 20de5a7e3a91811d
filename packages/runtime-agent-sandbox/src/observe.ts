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
  // A pod has the name of its Sandbox. Both are looked at together when the pod is known.
  const name = parts.connections.lastPodOf(instance)?.name;
  const looking = name === undefined ? undefined : parts.world.pods.find(name, signal).catch(() => undefined);
  const object = await parts.objects.find(instance, signal, name);
  if (object === undefined) return { is: 'gone', files: false, why: 'its Sandbox was deleted' };
  if (object.metadata.deletionTimestamp !== undefined) {
    return { is: 'unknown', why: 'its Sandbox is being deleted' };
  }
  if (stateOf(object) === 'starting') {
    // The volume is as the checkpoint left it, or newer: the next start goes on with it.
    return { is: 'gone', files: false, why: 'its start was not completed', untouched: true };
  }
  if (isWantedSuspended(object)) return observeSuspended(parts, object, signal);
  const pod = await podOf(parts, object, await looking, signal);
  const why = whyEnded(object, pod);
  if (why !== undefined) return ended(parts, object, why, signal);
  if (pod === undefined) return { is: 'unknown', why: 'its pod is not known' };
  const state = podState(pod);
  if (state.is !== 'running') return { is: 'unknown', why: 'why' in state ? state.why : '' };
  parts.connections.sawRunning(instance, pod.metadata.uid);
  return { is: 'running' };
}

/**
 * The pod in which the instance was last reached is looked at together with the Sandbox. When it does not run there, the pod of
 * the Sandbox is looked at: what was seen may have been so only before the Sandbox was seen.
 */
async function podOf(
  { world }: Parts,
  object: SandboxObject,
  last: Pod | undefined,
  signal: AbortSignal,
): Promise<Pod | undefined> {
  const isRunning = last !== undefined && podState(last).is === 'running';
  const isExpected = last?.metadata.uid === object.metadata.annotations?.[POD_ANNOTATION];
  return isRunning && isExpected ? last : world.pods.find(podNameOf(object), signal);
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
