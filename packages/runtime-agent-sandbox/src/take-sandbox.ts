/** The Sandbox that an instance starts on: from the warm pool, new, or suspended, with the Secret of the start. */
import { randomBytes } from 'node:crypto';
import type { Instance, StartSpec } from '@torpor/engine';
import {
  HOME_LABEL,
  instanceOf,
  labelsOf,
  type OwnerReference,
  objectName,
  type PodWorld,
  podSpec,
  podState,
  type ReachedPod,
  reachedPod,
  type StartSecret,
} from '@torpor/pods';
import { type CheckpointId, type Resources, TorporError } from '@torpor/protocol';
import { missing, type SandboxCheckpoint } from './checkpoint-needs.ts';
import type { Parts } from './parts.ts';
import { IMAGE_ANNOTATION, podNameOf, type SandboxObject, STATE_ANNOTATION } from './sandbox-object.ts';
import { VOLUME } from './sandbox-objects.ts';
import type { WarmPool } from './warm-pool.ts';

/** A create must not be aborted half done: the cluster could make the object after its destruction. */
const NEVER_ABORTED = new AbortController().signal;

/** An object that an instance starts on. */
export interface Taken {
  readonly object: SandboxObject;
  readonly secret: StartSecret;
  /** Of an object of the warm pool, which becomes the instance's own when the start ends. */
  readonly fromPool?: FromPool;
}

interface FromPool {
  readonly pool: WarmPool;
  readonly podTemplate: object;
  /** Undefined when it was not seen to run, as when the pool was empty: the start waits for it. */
  readonly pod: ReachedPod | undefined;
}

export interface StartOrder {
  readonly parts: Parts;
  readonly instance: Instance;
  readonly spec: StartSpec;
  readonly signal: AbortSignal;
}

function makeSecret({ parts, instance, spec }: StartOrder): Promise<StartSecret> {
  const token = randomBytes(32).toString('hex');
  return parts.world.secrets.make(instance, { token, spec }, NEVER_ABORTED);
}

async function ownerOf(
  { objects }: Parts,
  { metadata }: SandboxObject,
  signal: AbortSignal,
): Promise<OwnerReference> {
  const { name = '', uid = '' } = metadata;
  return { apiVersion: await objects.apiVersion(signal), kind: 'Sandbox', name, uid };
}

/** From the warm pool when it has what the start needs, else a Sandbox of its own. */
export async function takeNewSandbox(order: StartOrder, image: string): Promise<Taken> {
  return (await takeFromPool(order, image)) ?? (await createObject(order, image));
}

/** Undefined when the start needs another pod than those of the pool, or when there is no pool. */
async function takeFromPool(order: StartOrder, image: string): Promise<Taken | undefined> {
  const { parts, instance, spec, signal } = order;
  const { world, objects, connections, pool } = parts;
  if (pool?.isThere !== true || !isOfPool(world, instance, image, spec.resources)) return undefined;
  const [name, secret] = await settled(pool.claim(instance, signal), makeSecret(order));
  if (name === undefined) return undefined;
  signal.throwIfAborted();
  // Nothing is said to the agent yet. What a server leaves that dies here is found: claim and Secret have the labels of the
  // instance, and the Sandbox belongs to the claim.
  connections.preconnect(name);
  const looking = runningPod(world, name, signal);
  const metadata = { labels: labelsOf(world.home, instance), annotations: startingWith(image) };
  const [object] = await settled(
    objects.change(name, { metadata }, NEVER_ABORTED),
    pool.beginRemoval(instance, signal),
  );
  await world.secrets.giveTo(instance, await ownerOf(parts, object, signal), NEVER_ABORTED);
  const podTemplate = podTemplateOf(world, instance, image, spec.resources);
  const seen = await looking;
  const pod = seen?.name === podNameOf(object) ? seen : undefined;
  return { object, secret, fromPool: { pool, podTemplate, pod } };
}

/** Both at the same time. When one fails, the other has ended too: nothing is made after the start has failed. */
async function settled<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return Promise.all([first, second]);
}

/** A pod of the pool has the name of its Sandbox. Undefined when the cluster does not say that it runs. */
async function runningPod(
  { pods }: PodWorld,
  name: string,
  signal: AbortSignal,
): Promise<ReachedPod | undefined> {
  const pod = await pods.find(name, signal).catch(() => undefined);
  return pod !== undefined && podState(pod).is === 'running' ? reachedPod(pod) : undefined;
}

function isOfPool(world: PodWorld, instance: Instance, image: string, resources: Resources): boolean {
  const [wanted, pooled] = [resources, {}].map((limits) =>
    JSON.stringify([podTemplateOf(world, instance, image, limits), volumeOf(world, limits)]),
  );
  return image === world.podSettings.image && wanted === pooled;
}

/** What a Sandbox of the warm pool is made from. */
export function poolBlueprint(world: PodWorld, secretName: string): object {
  const spec = podSpec({
    settings: world.podSettings,
    image: world.podSettings.image,
    resources: {},
    sandboxId: undefined,
    secretName,
    homeVolume: VOLUME,
  });
  const podTemplate = { metadata: { labels: { [HOME_LABEL]: world.home } }, spec };
  return { podTemplate, volumeClaimTemplates: [volumeOf(world, {})] };
}

function volumeOf({ podSettings }: PodWorld, { diskMb }: Resources): object {
  const { storageClass, volumeMb } = podSettings;
  return {
    metadata: { name: VOLUME },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: `${diskMb ?? volumeMb}Mi` } },
      ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
    },
  };
}

function startingWith(image: string): object {
  return { [STATE_ANNOTATION]: 'starting', [IMAGE_ANNOTATION]: image };
}

async function createObject(order: StartOrder, image: string): Promise<Taken> {
  const { parts, instance, spec, signal } = order;
  const { world, objects } = parts;
  const secret = await makeSecret(order);
  signal.throwIfAborted();
  const metadata = { labels: labelsOf(world.home, instance), annotations: startingWith(image) };
  const object = await objects.create(
    objectName(instance),
    metadata,
    {
      podTemplate: podTemplateOf(world, instance, image, spec.resources),
      volumeClaimTemplates: [volumeOf(world, spec.resources)],
    },
    NEVER_ABORTED,
  );
  await world.secrets.giveTo(instance, await ownerOf(parts, object, signal), NEVER_ABORTED);
  return { object, secret };
}

/** The pod has the labels of the instance, so that the watch of pods tells of it. */
function podTemplateOf(world: PodWorld, instance: Instance, image: string, resources: Resources) {
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
export async function takeSuspendedSandbox(
  order: StartOrder,
  from: CheckpointId,
  { name, uid, image }: Extract<SandboxCheckpoint, { is: 'suspended' }>,
): Promise<Taken> {
  const { parts, instance, spec, signal } = order;
  const { world, objects } = parts;
  const secret = await makeSecret(order);
  signal.throwIfAborted();
  const found = await objects.findByName(name, signal);
  if (found === undefined || found.metadata.uid !== uid) throw missing(from, 'its Sandbox was deleted');
  const user = instanceOf(found.metadata);
  if (user !== undefined && objectName(user) !== objectName(instance)) {
    throw new TorporError('conflict', `The volume of the checkpoint is in use by ${user.sandboxId}.`, {
      checkpointId: from,
    });
  }
  const metadata = {
    labels: labelsOf(world.home, instance),
    annotations: { [STATE_ANNOTATION]: 'starting' },
  };
  const podTemplate = podTemplateOf(world, instance, image, spec.resources);
  // A shutdown time that has passed would end the new pod at once.
  const change = { metadata, spec: { podTemplate, shutdownTime: null }, mode: 'Running' as const };
  const object = await objects.change(name, change, NEVER_ABORTED);
  await world.secrets.giveTo(instance, await ownerOf(parts, object, signal), NEVER_ABORTED);
  return { object, secret };
}
