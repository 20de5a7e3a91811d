/** What a pod's status means, in one word and in words for people. A pure function of the object. */
import type { ErrorCode } from '@torpor/protocol';
import { condition, type Pod } from './resources.ts';

export type PodState =
  /** It has not started yet, and may. */
  | { readonly is: 'starting'; readonly why: string }
  /** It has not started, for a reason that an operator has to remove. `now`: waiting longer is of no use. */
  | { readonly is: 'blocked'; readonly why: string; readonly code: ErrorCode; readonly now: boolean }
  | { readonly is: 'running' }
  /** It was deleted and still ends, or its node does not report: neither running nor proved gone. */
  | { readonly is: 'terminating' | 'node lost'; readonly why: string }
  /** Its containers have ended for good. */
  | { readonly is: 'ended'; readonly why: string };

/** Reasons of a waiting container that no waiting removes. */
const FINAL_WAITS: Readonly<Record<string, string>> = {
  InvalidImageName: 'the name of its image is not valid',
  ErrImageNeverPull: 'its image is not on the node and may not be pulled',
  CreateContainerConfigError: 'its container cannot be configured',
  CreateContainerError: 'its container cannot be created',
  RunContainerError: 'its container cannot be run',
};

/** The kubelet tries again after these; the second is said after a failed try. */
const IMAGE_WAITS: Readonly<Record<string, boolean>> = { ErrImagePull: false, ImagePullBackOff: true };

/** Who decided to end the pod, by the reason of its condition `DisruptionTarget`. */
const DISRUPTIONS: Readonly<Record<string, string>> = {
  PreemptionByScheduler: 'it was preempted by a pod of higher priority',
  DeletionByTaintManager: 'its node was tainted',
  EvictionByEvictionAPI: 'it was evicted from its node (a drain)',
  DeletionByPodGC: 'its node no longer exists',
  TerminationByKubelet: 'its node ended it (pressure, or a shutdown of the node)',
};

/** Reasons of `status.reason`. */
const ENDS: Readonly<Record<string, string>> = {
  Evicted: 'it was evicted from its node',
  Preempting: 'it was preempted by a pod of higher priority',
  Preempted: 'it was preempted by a pod of higher priority',
  NodeShutdown: 'its node was shut down',
  Terminated: 'its node was shut down',
  NodeLost: 'its node was lost',
  DeadlineExceeded: 'it exceeded its deadline',
  OutOfcpu: 'its node had no processor left',
  OutOfmemory: 'its node had no memory left',
};

export function podState(pod: Pod): PodState {
  const { phase } = pod.status ?? {};
  if (phase === 'Failed' || phase === 'Succeeded') return { is: 'ended', why: endOf(pod) };
  const lost = lostNode(pod);
  if (pod.metadata.deletionTimestamp !== undefined) {
    const where = lost === undefined ? '' : `, and ${lost}`;
    return { is: 'terminating', why: `the pod is being deleted${because(pod)}${where}` };
  }
  if (lost !== undefined) return { is: 'node lost', why: lost };
  if (phase === 'Running') return { is: 'running' };
  return blockOf(pod) ?? { is: 'starting', why: waitOf(pod) };
}

function endOf(pod: Pod): string {
  const { reason, message, containerStatuses = [], initContainerStatuses = [] } = pod.status ?? {};
  const known = reason === undefined ? undefined : ENDS[reason];
  const disruption = disruptionOf(pod);
  if (known !== undefined || disruption !== undefined) {
    return `${known ?? disruption}${message === undefined ? '' : ` (${message})`}`;
  }
  const ended = [...initContainerStatuses, ...containerStatuses].find(
    ({ state }) => state?.terminated !== undefined && state.terminated.exitCode !== 0,
  );
  const { reason: how, exitCode } = ended?.state?.terminated ?? {};
  if (how === 'OOMKilled') return 'its container exceeded its memory limit and was killed';
  if (ended !== undefined)
    return `its container "${ended.name}" ended with ${exitCode} (${how ?? 'no reason'})`;
  return reason === undefined ? 'its container has ended' : `it ended: ${reason}`;
}

function disruptionOf({ status }: Pod): string | undefined {
  const target = condition(status?.conditions, 'DisruptionTarget');
  if (target?.status !== 'True') return undefined;
  return DISRUPTIONS[target.reason ?? ''] ?? target.message ?? target.reason;
}

function because(pod: Pod): string {
  const disruption = disruptionOf(pod);
  return disruption === undefined ? '' : `: ${disruption}`;
}

/** The node controller takes only `Ready` away from the pods of a node that no longer reports. */
function lostNode({ spec, status }: Pod): string | undefined {
  const { conditions, phase, reason } = status ?? {};
  const isLost =
    phase === 'Unknown' ||
    reason === 'NodeLost' ||
    (condition(conditions, 'Ready')?.status === 'False' &&
      condition(conditions, 'ContainersReady')?.status === 'True');
  return isLost ? `its node "${spec?.nodeName}" does not report any more` : undefined;
}

function blockOf({ status }: Pod): PodState | undefined {
  const scheduled = condition(status?.conditions, 'PodScheduled');
  if (scheduled?.status === 'False' && scheduled.reason === 'Unschedulable') {
    const why = `no node can take it: ${scheduled.message}`;
    return { is: 'blocked', why, code: 'capacity', now: false };
  }
  const all = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  for (const { name, state } of all) {
    const { reason = '', message = '' } = state?.waiting ?? {};
    const final = FINAL_WAITS[reason];
    const said = `${message === '' ? reason : message} (container "${name}")`;
    if (final !== undefined) return { is: 'blocked', why: `${final}: ${said}`, code: 'conflict', now: true };
    const image = IMAGE_WAITS[reason];
    if (image !== undefined)
      return { is: 'blocked', why: `its image cannot be pulled: ${said}`, code: 'conflict', now: image };
  }
  return undefined;
}

function waitOf({ status, spec }: Pod): string {
  if (spec?.nodeName === undefined) return 'it waits for a node';
  const all = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  const reason = all.map(({ state }) => state?.waiting?.reason).find((one) => one !== undefined);
  return `it starts on ${spec.nodeName}${reason === undefined ? '' : ` (${reason})`}`;
}
