/** What a Sandbox resource says, as pure functions of the object. A condition counts only for the present generation. */
import { type Condition, condition, type Metadata } from '@torpor/pods';

export interface SandboxObject {
  readonly metadata: Metadata;
  readonly spec?: { readonly operatingMode?: string; readonly replicas?: number };
  readonly status?: { readonly conditions?: readonly Condition[] };
}

export const STATE_ANNOTATION = 'torpor.dev/state';
export const POD_ANNOTATION = 'torpor.dev/pod';
export const IMAGE_ANNOTATION = 'torpor.dev/image';
/** Names the checkpoint that the object is, or that the present instance was started from. */
export const CHECKPOINT_LABEL = 'torpor.dev/checkpoint';
const POD_NAME_ANNOTATION = 'agents.x-k8s.io/pod-name';

/** What the instance on the object is doing; absent when there is none. */
export type InstanceState = 'starting' | 'running' | 'frozen';

export function stateOf({ metadata }: SandboxObject): InstanceState | undefined {
  const state = metadata.annotations?.[STATE_ANNOTATION];
  return state === 'starting' || state === 'running' || state === 'frozen' ? state : undefined;
}

export function podNameOf({ metadata }: SandboxObject): string {
  return metadata.annotations?.[POD_NAME_ANNOTATION] ?? metadata.name ?? '';
}

/** The claim that the controller makes for our volume. */
export function claimNameOf({ metadata }: SandboxObject, volume: string): string {
  return `${volume}-${metadata.name}`;
}

/** Undefined unless the controller has judged the present generation. */
function current(object: SandboxObject, type: string): Condition | undefined {
  const found = condition(object.status?.conditions, type);
  const { generation } = object.metadata;
  return found?.observedGeneration === generation ? found : undefined;
}

export function isWantedSuspended({ spec }: SandboxObject): boolean {
  return spec?.operatingMode === 'Suspended' || spec?.replicas === 0;
}

/** The controller confirms that it has ended the pod. `Ready` is trusted over a stale `Suspended`. */
export function isSuspended(object: SandboxObject): boolean {
  return (
    isWantedSuspended(object) &&
    current(object, 'Ready')?.status === 'False' &&
    current(object, 'Suspended')?.status === 'True'
  );
}

/** Controllers before the condition `Suspended` say only by `Ready` that they have seen the change. */
export function hasNoSuspendedCondition({ status }: SandboxObject): boolean {
  return condition(status?.conditions, 'Suspended') === undefined;
}

export function isSeenNotReady(object: SandboxObject): boolean {
  return current(object, 'Ready')?.status === 'False';
}

export function isReady(object: SandboxObject): boolean {
  return !isWantedSuspended(object) && current(object, 'Ready')?.status === 'True';
}

/** Reasons of `Ready` = False that waiting does not change. */
const ENDS: Readonly<Record<string, string>> = {
  SandboxExpired: 'its Sandbox has expired (shutdownTime)',
  PodSucceeded: 'its pod has ended',
  PodFailed: 'its pod has failed',
  MultiplePods: 'the controller finds several pods for it',
};

/** Why the Sandbox will not run again by itself; undefined while it may. */
export function endOf(object: SandboxObject): string | undefined {
  const ready = current(object, 'Ready');
  const known = ready?.status === 'False' ? ENDS[ready.reason ?? ''] : undefined;
  return known === undefined
    ? undefined
    : `${known}${ready?.message === undefined ? '' : `: ${ready.message}`}`;
}

/** What the controller says, for people. */
export function readyText(object: SandboxObject): string {
  const ready = condition(object.status?.conditions, 'Ready');
  if (ready === undefined) return 'the controller has not said anything';
  return `the controller says ${ready.reason ?? ready.status}${ready.message ? ` (${ready.message})` : ''}`;
}
