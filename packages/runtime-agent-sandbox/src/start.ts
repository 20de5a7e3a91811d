/** Starts an instance on a new Sandbox or on a suspended one, suspends it, and lets it go on. */
import { randomBytes } from 'node:crypto';
import type { Instance, StartSpec } from '@torpor/engine';
import {
  instanceOf,
  labelsOf,
  notAlive,
  objectName,
  type PodConnections,
  type PodWorld,
  podSpec,
  podState,
  type ReachedPod,
  type StartSecret,
  setUpAgent,
} from '@torpor/pods';
import { type CheckpointId, type Resources, TorporError } from '@torpor/protocol';
import { missing, type SandboxCheckpoint } from './checkpoint-needs.ts';
import {
  CHECKPOINT_LABEL,
  endOf,
  hasNoSuspendedCondition,
  IMAGE_ANNOTATION,
  isReady,
  isSeenNotReady,
  isSuspended,
  isWantedSuspended,
  POD_ANNOTATION,
  podNameOf,
  type SandboxObject,
  STATE_ANNOTATION,
} from './sandbox-object.ts';
import { type SandboxObjects, VOLUME } from './sandbox-objects.ts';

export interface Parts {
  readonly world: PodWorld;
  readonly objects: SandboxObjects;
  readonly connections: PodConnections;
}

/** A create must not be aborted half done: the cluster could make the object after its destruction. */
const NEVER_ABORTED = new AbortController().signal;

export async function startInstance(
  parts: Parts,
  instance: Instance,
  from: CheckpointId,
  checkpoint: SandboxCheckpoint,
  spec: StartSpec,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const token = randomBytes(32).toString('hex');
  const secret = await parts.world.secrets.make(instance, { token, spec }, NEVER_ABORTED);
  signal.throwIfAborted();
  const object =
    checkpoint.is === 'template'
      ? await createObject(parts, instance, checkpoint.image, spec.resources)
      : await takeObject(parts, instance, from, checkpoint, spec.resources, signal);
  const { name = '', uid = '' } = object.metadata;
  const apiVersion = await parts.objects.apiVersion(signal);
  await parts.world.secrets.giveTo(instance, { apiVersion, kind: 'Sandbox', name, uid }, NEVER_ABORTED);
  await bringUp(parts, instance, name, secret, signal);
}

async function createObject(
  { world, objects }: Parts,
  instance: Instance,
  image: string,
  resources: Resources,
): Promise<SandboxObject> {
  const { podSettings } = world;
  const storage = `${resources.diskMb ?? podSettings.volumeMb}Mi`;
  const { storageClass } = podSettings;
  const volume = {
    metadata: { name: VOLUME },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage } },
      ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
    },
  };
  const metadata = {
    labels: labelsOf(world.home, instance),
    annotations: {
      [STATE_ANNOTATION]: 'starting',
      [IMAGE_ANNOTATION]: image,
    },
  };
  const spec = {
    podTemplate: podTemplate(world, instance, image, resources),
    volumeClaimTemplates: [volume],
  };
  return objects.create(objectName(instance), metadata, spec, NEVER_ABORTED);
}

/** The pod has the labels of the instance, so that the watch of pods tells of it. */
function podTemplate(world: PodWorld, instance: Instance, image: string, resources: Resources) {
  const spec = podSpec({
    settings: world.podSettings,
    image,
    // The volume has its own size.
    resources: { ...resources, diskMb: undefined },
    sandboxId: instance.sandboxId,
    secretName: objectName(instance),
    homeVolume: VOLUME,
  });
  return { metadata: { labels: labelsOf(world.home, instance) }, spec };
}

/** Goes on with the volume of a suspended Sandbox. The object keeps the mark of the checkpoint until it is captured anew. */
async function takeObject(
  { world, objects }: Parts,
  instance: Instance,
  from: CheckpointId,
  { name, uid, image }: Extract<SandboxCheckpoint, { is: 'suspended' }>,
  resources: Resources,
  signal: AbortSignal,
): Promise<SandboxObject> {
  const object = await objects.findByName(name, signal);
  if (object === undefined || object.metadata.uid !== uid) throw missing(from, 'its Sandbox was deleted');
  const user = instanceOf(object.metadata);
  if (user !== undefined && objectName(user) !== objectName(instance)) {
    throw new TorporError('conflict', `The volume of the checkpoint is in use by ${user.sandboxId}.`, {
      checkpointId: from,
    });
  }
  const metadata = {
    labels: labelsOf(world.home, instance),
    annotations: {
      [STATE_ANNOTATION]: 'starting',
    },
  };
  // A shutdown time that has passed would end the new pod at once.
  const spec = { podTemplate: podTemplate(world, instance, image, resources), shutdownTime: null };
  return objects.change(name, { metadata, spec, mode: 'Running' }, NEVER_ABORTED);
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
  await bringUp(parts, instance, name, secret, signal, { [CHECKPOINT_LABEL]: null });
}

async function bringUp(
  parts: Parts,
  instance: Instance,
  name: string,
  secret: StartSecret,
  signal: AbortSignal,
  labels: object = {},
): Promise<void> {
  const { world, connections, objects } = parts;
  const pod = await untilReady(parts, instance, name, signal);
  const connection = { pod, token: secret.token };
  const address = await connections.agentAddress(connection);
  const check = async () => void (await world.pods.untilRunning(pod.name, instance, signal));
  const dial = (port: number) => connections.dial(connection, port, signal);
  const { clock, settings } = world;
  await setUpAgent({ instance, secret, address, clock, settings, check, dial }, signal);
  const annotations = { [STATE_ANNOTATION]: 'running', [POD_ANNOTATION]: pod.uid };
  await objects.change(name, { metadata: { annotations, labels } }, signal);
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
