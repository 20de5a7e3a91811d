/** Starts an instance on a Sandbox, suspends it, and lets it go on. */
import type { Instance, StartSpec } from '@torpor/engine';
import { notAlive, podState, type ReachedPod, setUpAgent } from '@torpor/pods';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import type { SandboxCheckpoint } from './checkpoint-needs.ts';
import type { Parts } from './parts.ts';
import {
  CHECKPOINT_LABEL,
  endOf,
  hasNoSuspendedCondition,
  isReady,
  isSeenNotReady,
  isSuspended,
  isWantedSuspended,
  POD_ANNOTATION,
  podNameOf,
  type SandboxObject,
  STATE_ANNOTATION,
} from './sandbox-object.ts';
import { type Taken, takeNewSandbox, takeSuspendedSandbox } from './take-sandbox.ts';

export async function startInstance(
  parts: Parts,
  instance: Instance,
  from: CheckpointId,
  checkpoint: SandboxCheckpoint,
  spec: StartSpec,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const order = { parts, instance, spec, signal };
  const taken =
    checkpoint.is === 'template'
      ? await takeNewSandbox(order, checkpoint.image)
      : await takeSuspendedSandbox(order, from, checkpoint);
  await bringUp(parts, instance, taken, signal);
}

/** Lets a suspended instance go on under the same generation: a new pod, the same volume, its services started again. */
export async function continueInstance(
  parts: Parts,
  instance: Instance,
  object: SandboxObject,
  signal: AbortSignal,
): Promise<void> {
  const secret = await parts.world.secrets.read(instance, signal);
  if (secret === undefined) throw notAlive(instance, 'the credential of its start does not exist any more');
  const { name = '' } = object.metadata;
  await parts.objects.change(name, { mode: 'Running' }, signal);
  await bringUp(parts, instance, { object, secret }, signal, { [CHECKPOINT_LABEL]: null });
}

async function bringUp(
  parts: Parts,
  instance: Instance,
  { object, secret, fromPool }: Taken,
  signal: AbortSignal,
  labels: object = {},
): Promise<void> {
  const { world, connections, objects } = parts;
  const { name = '' } = object.metadata;
  // The agent of a pod that has waited in the pool answers only to the credential of this pod. That proves more than the
  // condition of the Sandbox, which the controller writes anew after a claim.
  const pod = fromPool?.pod ?? (await untilReady(parts, instance, name, signal));
  const connection = { pod, token: secret.token };
  const address = await connections.agentAddress(connection);
  const check = async () => void (await world.pods.untilRunning(pod.name, instance, signal));
  const dial = (port: number) => connections.dial(connection, port, signal);
  const { clock, settings } = world;
  const credential = fromPool?.pool.credentialOf(pod.uid) ?? secret.token;
  await setUpAgent({ instance, secret, credential, address, clock, settings, check, dial }, signal);
  connections.remember(instance, connection);
  const annotations = { [STATE_ANNOTATION]: 'running', [POD_ANNOTATION]: pod.uid };
  await objects.change(
    name,
    fromPool === undefined
      ? { metadata: { annotations, labels } }
      : // Without an owner it stays when the claim goes.
        {
          metadata: { annotations, labels, ownerReferences: null },
          spec: { podTemplate: fromPool.podTemplate },
        },
    signal,
  );
  fromPool?.pool.letGo(instance);
}

/** The controller must say `Ready` for the present generation, and the pod must run. */
async function untilReady(
  { world, objects }: Parts,
  instance: Instance,
  name: string,
  signal: AbortSignal,
): Promise<ReachedPod> {
  const { pods, clock, settings } = world;
  let blockedSince: number | undefined;
  const object = await objects.until(
    name,
    async (seen) => {
      if (seen === undefined) throw notAlive(instance, 'its Sandbox was deleted while it started');
      const end = endOf(seen);
      if (end !== undefined) throw notAlive(instance, end);
      if (isReady(seen)) return true;
      const pod = await pods.find(podNameOf(seen), signal);
      const state = pod === undefined ? undefined : podState(pod);
      if (state?.is !== 'blocked') blockedSince = undefined;
      else {
        blockedSince ??= clock.monotonic();
        if (state.now || clock.monotonic() - blockedSince > settings.kubernetesBlockedMs) {
          throw new TorporError(state.code, `The pod cannot start: ${state.why}.`, {
            sandboxId: instance.sandboxId,
          });
        }
      }
      return false;
    },
    'ready',
    signal,
  );
  return pods.untilRunning(object === undefined ? name : podNameOf(object), instance, signal);
}

/** Suspends the Sandbox, and waits until the controller has confirmed it for the present generation. */
export async function suspend(
  parts: Parts,
  object: SandboxObject,
  annotations: object,
  signal: AbortSignal,
  labels: object = {},
): Promise<void> {
  const { name = '' } = object.metadata;
  await parts.objects.change(name, { metadata: { annotations, labels }, mode: 'Suspended' }, signal);
  const isDone = async (seen: SandboxObject | undefined) => {
    if (seen === undefined) throw missingObject(name);
    return isProvedSuspended(parts, seen, signal);
  };
  await parts.objects.until(name, isDone, 'suspended', signal);
}

/** Never by a field that we wrote: the controller says so, and the cluster has no pod. */
export async function isProvedSuspended(
  { world }: Parts,
  object: SandboxObject,
  signal: AbortSignal,
): Promise<boolean> {
  if (!isWantedSuspended(object)) return false;
  const isConfirmed = isSuspended(object) || (hasNoSuspendedCondition(object) && isSeenNotReady(object));
  return isConfirmed && (await world.pods.find(podNameOf(object), signal)) === undefined;
}

function missingObject(name: string): TorporError {
  return new TorporError('checkpoint_missing', `The Sandbox "${name}" was deleted.`);
}
