/** Starts an instance from a checkpoint: container setup, restore or boot, agent setup, services. */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import { allDone } from '@torpor/host';
import { bareSandboxId, TorporError, visibleProcessors } from '@torpor/protocol';
import { MEMORY, needsOf, readSecrets } from './checkpoint-needs.ts';
import { writeOwner } from './container/container-owner.ts';
import {
  applyNetworkAndLimits,
  type ContainerSetup,
  type ContainerSource,
  containerProgram,
  type HostResources,
  newUnassignedPaths,
  setUpContainer,
  tearDownContainer,
} from './container/container-setup.ts';
import { containerSourceFor } from './container/container-source.ts';
import type { HostResourcePool } from './container/host-resource-pool.ts';
import type { PreCreatedContainers } from './container/pre-created-containers.ts';
import { writeBootCredential } from './guest/boot-credential.ts';
import type { PackedImage } from './image/packed-image.ts';
import { setUpAgent } from './instance/agent-setup.ts';
import { ensureServices, probeServices } from './instance/ensure-services.ts';
import { type InstanceRecord, pathsIn } from './instance/instance-files.ts';
import { trustEgress, usesSecrets } from './instance/trust-egress.ts';
import { withDefaults } from './limits/default-limits.ts';
import type { PreparedRestore } from './runsc/prepared-commands.ts';
import type { RuntimeContext } from './runtime-context.ts';
import type { RunningContainer } from './warm/adopt.ts';

const MIB = 1024 * 1024;

export interface StartRequest {
  readonly instance: Instance;
  readonly from: SealedCheckpoint;
  readonly mode: 'memory' | 'files';
  readonly spec: StartSpec;
  /** The address of a port of the instance; null when no process listens on the port. */
  readonly dial: (port: number) => Promise<Address | null>;
}

export interface StartedInstance {
  readonly started: Started;
  readonly record: InstanceRecord;
  /** Ports that have answered on the sandbox's own address. */
  readonly answered: readonly number[];
}

/** What was started, and the ports that have answered. */
type SetUp = Omit<StartedInstance, 'record'>;

/** Pools of resources created in advance. */
export interface Pools {
  readonly preCreated: PreCreatedContainers;
  readonly hostResourcePool: HostResourcePool;
}

export async function startInstance(
  ctx: RuntimeContext,
  pools: Pools,
  request: StartRequest,
  signal: AbortSignal,
): Promise<StartedInstance> {
  if (request.mode === 'files') return startIn(ctx, pools, request, signal);
  // Unpacks the image while the container is made, and keeps the copy until the restore is done. Without this, the source of
  // a fork would evict the copy as soon as it is thawed.
  const { id } = request.from;
  const restored = Promise.withResolvers<void>();
  const keepingCopy = ctx.images.withImage(id, packedImage(ctx, request.from), () => restored.promise);
  // The restore uses the same copy, and throws the error of an unpacking that failed.
  keepingCopy.catch(() => {});
  try {
    return await startIn(ctx, pools, request, signal);
  } finally {
    restored.resolve();
  }
}

async function startIn(
  ctx: RuntimeContext,
  { preCreated: pool, hostResourcePool }: Pools,
  request: StartRequest,
  signal: AbortSignal,
): Promise<StartedInstance> {
  const { instance, from, mode } = request;
  const needs = needsOf(from);
  const limits = withDefaults(request.spec.resources);
  const [source, { credential }] = await Promise.all([
    containerSourceFor(ctx, needs, mode),
    mode === 'memory' ? readSecrets(from) : { credential: secret() },
  ]);
  await ctx.files.make(instance);
  const preCreated = mode === 'memory' ? await pool.take(from.id, source, limits) : undefined;
  const upper = preCreated?.upper ?? (await ctx.layers.create());
  const hostResources = preCreated ?? (mode === 'memory' ? hostResourcePool.take(source) : undefined);
  const planned = plannedRecord(ctx, request, source, upper, hostResources);
  const plan = { source, preCreated, hostResources, planned };
  const { setup, record } = await setUpAndRecord(ctx, request, plan, signal);
  signal.throwIfAborted();
  if (mode === 'memory') await restore(ctx, setup, from, signal);
  else await boot(ctx, setup, credential, signal);
  const { attachment } = setup;
  return { ...(await setUpRunning(ctx, request, { record, attachment, credential }, signal)), record };
}

/** What follows when the processes of a container run: agent and services. */
export async function setUpRunning(
  ctx: RuntimeContext,
  request: StartRequest,
  { record, attachment, credential, isAdopted, agent: connected, agentMs }: RunningContainer,
  signal: AbortSignal,
): Promise<SetUp> {
  const { instance, from, mode, spec } = request;
  const settingUp = setUpAgent(
    {
      attachment,
      credential,
      token: record.token,
      nextCredential: record.credential,
      sandboxId: instance.sandboxId,
      hostname: bareSandboxId(instance.sandboxId),
      env: spec.env,
      user: spec.user,
      workdir: spec.workdir,
      processes: withDefaults(spec.resources).processes,
      processors: visibleProcessors(spec.resources, availableParallelism()),
      memory: isAdopted === true ? 'goes on' : mode === 'memory' ? 'restored' : 'none',
      agent: connected,
      isAlive: async () => (await ctx.runsc.recordedState(record.container.id)).is !== 'gone',
    },
    ctx.clock,
    agentMs === undefined ? signal : AbortSignal.any([signal, AbortSignal.timeout(agentMs)]),
  );
  const probes = mode === 'memory' ? probeServices(attachment.guestAddress, spec, signal) : [];
  // Fills the cache of known sentries while waiting for the agent.
  void ctx.runsc.recordedState(record.container.id).catch(() => {});
  const { agent, ...processes } = await settingUp;
  let services: Awaited<ReturnType<typeof ensureServices>>;
  try {
    if (usesSecrets(spec.network)) await trustEgress(ctx, instance, agent, signal);
    services = await ensureServices(ctx, request, { agent, ...processes, probes }, signal);
  } finally {
    agent.close();
  }
  const { answered, succeeded } = services;
  const doneBefore = succeeded.length === 0 ? {} : { succeeded };
  if (mode === 'memory') return { started: { mode: 'memory', lost: [], ...doneBefore }, answered };
  const isFirstStart = needsOf(from).template !== null;
  return { started: { mode: 'files', lost: isFirstStart ? [] : ['processes'] }, answered };
}

interface StartPlan {
  readonly source: ContainerSource;
  readonly preCreated: ContainerSetup | undefined;
  readonly hostResources: HostResources | undefined;
  readonly planned: InstanceRecord;
}

/** Sets up the container and writes the record of the instance, before any process runs in the container. */
async function setUpAndRecord(
  ctx: RuntimeContext,
  { instance, spec }: StartRequest,
  { source, preCreated, hostResources, planned }: StartPlan,
  signal: AbortSignal,
): Promise<{ readonly setup: ContainerSetup; readonly record: InstanceRecord }> {
  const resources = withDefaults(spec.resources);
  const networkAndLimits = { network: spec.network, resources };
  const setUpNew = () =>
    setUpContainer(
      ctx,
      {
        name: planned.container.id,
        paths: pathsIn(dirname(planned.container.bundle)),
        source,
        upper: planned.upper,
        hostname: bareSandboxId(instance.sandboxId),
        memoryMb: resources.memoryMb,
        hostResources,
        networkAndLimits,
      },
      signal,
    );
  const limitDisk = () =>
    ctx.diskProjects?.assign(instance.sandboxId, planned, resources.diskMb * MIB, signal);
  const setUpMounted = async () => {
    const container = await setUpNew();
    await limitDisk();
    return container;
  };
  const configure = async (container: ContainerSetup) => {
    await allDone(applyNetworkAndLimits(ctx, container, networkAndLimits), limitDisk());
    return container;
  };
  const tasks = [
    preCreated === undefined ? setUpMounted() : configure(preCreated),
    // From here on a server that cleans up finds the instance.
    ctx.files.write(instance, planned),
  ] as const;
  const [, written] = await Promise.allSettled(tasks);
  if (written.status === 'rejected') await tearDownUnrecorded(ctx, planned);
  const [setup] = await Promise.all(tasks);
  writeOwner(setup.container, instance);
  const { container, attachment } = setup;
  const record = { ...planned, container, guestAddress: attachment.guestAddress };
  if (hostResources === undefined) await ctx.files.write(instance, record);
  return { setup, record };
}

function plannedRecord(
  ctx: RuntimeContext,
  { spec, from, mode }: StartRequest,
  source: ContainerSource,
  upper: InstanceRecord['upper'],
  hostResources: HostResources | undefined,
): InstanceRecord {
  const { name, directory } = newUnassignedPaths(ctx);
  const { bundle, logs, rootfs } = pathsIn(directory);
  const own = { id: name, bundle, logs, netns: null, runsc: containerProgram(source.binary) };
  return {
    version: 1,
    container: hostResources?.container ?? own,
    rootfs: hostResources?.rootfs ?? rootfs,
    root: source.rootKind,
    upper,
    lower: source.lower,
    pages: mode === 'memory' ? needsOf(from).pages : [],
    merged: null,
    tools: source.tools.fingerprint,
    system: source.system?.fingerprint ?? null,
    runsc: source.binary.digest,
    guestAddress: hostResources?.attachment.guestAddress ?? '',
    token: secret(),
    credential: secret(),
    network: spec.network,
    resources: spec.resources,
    capturedFor: null,
  };
}

/** Without a record, no later destroy would find the container and its layer. */
async function tearDownUnrecorded(
  ctx: RuntimeContext,
  { container, rootfs, upper }: InstanceRecord,
): Promise<void> {
  const { id: name, bundle } = container;
  const neverAborted = new AbortController().signal;
  await tearDownContainer(ctx, { name, bundle, rootfs, directory: dirname(bundle) }, neverAborted);
  await ctx.layers.remove(upper);
}

function packedImage({ layers }: RuntimeContext, checkpoint: SealedCheckpoint): PackedImage {
  const { pages } = needsOf(checkpoint);
  return { directory: join(checkpoint.path ?? '', MEMORY), layers: pages.map(({ id }) => layers.path(id)) };
}

/**
 * A complete image whose restore fails twice cannot be used. The first failure may be the host's fault, and giving up on
 * the image loses all processes, so the restore is tried again.
 */
async function restore(
  ctx: RuntimeContext,
  { container, preparedRestore }: ContainerSetup,
  from: SealedCheckpoint,
  signal: AbortSignal,
): Promise<void> {
  const { runsc, images, report } = ctx;
  const restoreWith = (target: Pick<PreparedRestore, 'restore'>) =>
    images.withImage(from.id, packedImage(ctx, from), (image) => target.restore(image, signal));
  const newRestore = { restore: (image: string) => runsc.restore(container, image, signal) };
  try {
    await restoreWith(preparedRestore ?? newRestore);
  } catch (thrown) {
    signal.throwIfAborted();
    if (!isRunscFailure(thrown)) throw thrown;
    report('runsc refused a memory image; the restore is tried again', {
      checkpointId: from.id,
      error: thrown,
    });
    await runsc.killProcesses(container, signal);
    await runsc.deleteState(container.id);
    // The unpacked copy may be damaged: unpack the image again.
    await images.evict(from.id);
    await restoreWith(newRestore).catch((again: unknown) => {
      signal.throwIfAborted();
      throw isRunscFailure(again) ? incompatible(from, again) : again;
    });
  }
}

/** Whether runsc itself failed, as opposed to a timeout, a full disk or a damaged image. */
function isRunscFailure(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && thrown.code === 'internal';
}

function incompatible({ id }: SealedCheckpoint, cause: TorporError): TorporError {
  const message = `The memory of ${id} cannot be used: ${cause.message}`;
  return new TorporError('checkpoint_incompatible', message, { checkpointId: id, cause });
}

async function boot(
  { runsc, mounts }: RuntimeContext,
  { container, rootfs }: ContainerSetup,
  credential: string,
  signal: AbortSignal,
): Promise<void> {
  await writeBootCredential(mounts.hostPath(rootfs), credential);
  await runsc.run(container, signal);
}

export function secret(): string {
  return randomBytes(32).toString('hex');
}

export function noSuchInstance({ sandboxId, generation }: Instance): TorporError {
  return new TorporError('unreachable', `Generation ${generation} of ${sandboxId} is not alive.`, {
    sandboxId,
  });
}
