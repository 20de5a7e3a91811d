/** Starting an instance from a checkpoint: a setup, its memory or a boot, its agent, its services. */
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import type { RunscBinary } from './binaries/runsc-binaries.ts';
import { type GvisorNeeds, MEMORY, needsOf, readSecrets } from './checkpoint-needs.ts';
import {
  applyNetworkAndLimits,
  type ContainerSetup,
  type ContainerSource,
  containerProgram,
  type HostResources,
  setUpContainer,
  tearDownContainer,
} from './container/container-setup.ts';
import type { HostResourcePool } from './container/host-resource-pool.ts';
import type { WarmPool } from './container/warm-pool.ts';
import { leaveCredential } from './guest/boot-credential.ts';
import { openGuestTools } from './guest/guest-tools.ts';
import { setUpAgent } from './instance/agent-setup.ts';
import { ensureServices, probeServices } from './instance/ensure-services.ts';
import type { InstanceRecord } from './instance/instance-files.ts';
import { instanceName } from './instance/instance-names.ts';
import { withDefaults } from './limits/default-limits.ts';
import type { PreparedRestore } from './runsc/runsc.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface StartOrder {
  readonly instance: Instance;
  readonly from: SealedCheckpoint;
  readonly use: 'memory' | 'files';
  readonly spec: StartSpec;
  /** Where a port of the instance can be dialled. */
  readonly dial: (port: number) => Promise<Address | null>;
}

/** What was made before anybody asked. */
export interface Pools {
  readonly warmPool: WarmPool;
  readonly hostResourcePool: HostResourcePool;
}

export async function startInstance(
  ctx: RuntimeContext,
  { warmPool, hostResourcePool }: Pools,
  order: StartOrder,
  signal: AbortSignal,
): Promise<{ readonly started: Started; readonly record: InstanceRecord }> {
  const { instance, from, use, spec } = order;
  const needs = needsOf(from);
  const [source, { credential }] = await Promise.all([
    containerSourceFor(ctx, needs, use),
    use === 'memory' ? readSecrets(from) : { credential: secret() },
  ]);
  await ctx.files.make(instance);
  const precreated = use === 'memory' ? await warmPool.take(from.id, source) : undefined;
  const upper = precreated?.upper ?? (await ctx.layers.create());
  const hostResources = precreated ?? (use === 'memory' ? hostResourcePool.take(source) : undefined);
  const planned = recordOf(ctx, order, source, upper, hostResources);
  const plan = { source, precreated, hostResources, planned };
  const { setup, record } = await setUpFor(ctx, order, plan, signal);
  const { attachment } = setup;
  signal.throwIfAborted();
  if (use === 'memory') await restore(ctx, setup, from, signal);
  else await boot(ctx, setup, credential, signal);

  const settingUp = setUpAgent(
    {
      attachment,
      credential,
      token: record.token,
      nextCredential: record.credential,
      sandboxId: instance.sandboxId,
      hostname: bareSandboxId(instance.sandboxId),
      env: spec.env,
      processes: withDefaults(spec.resources).processes,
      isRestored: use === 'memory',
      isAlive: async () => (await ctx.runsc.recordedState(record.container.id)).is !== 'gone',
    },
    ctx.clock,
    signal,
  );
  const probes = use === 'memory' ? probeServices(attachment.guestAddress, spec, signal) : [];
  // Its sentry is recognised meanwhile, so that nobody has to wait for that afterwards.
  void ctx.runsc.recordedState(record.container.id).catch(() => {});
  const { agent, tagged } = await settingUp;
  try {
    await ensureServices(ctx, order, { agent, tagged, probes }, signal);
  } finally {
    agent.close();
  }
  const isFirst = needs.template !== null;
  const started: Started =
    use === 'memory' ? { kind: 'memory', lost: [] } : { kind: 'files', lost: isFirst ? [] : ['processes'] };
  return { started, record };
}

interface Plan {
  readonly source: ContainerSource;
  readonly precreated: ContainerSetup | undefined;
  readonly hostResources: HostResources | undefined;
  readonly planned: InstanceRecord;
}

/** Gives the instance its setup, settled, and writes it down: before anything comes to life there. */
async function setUpFor(
  ctx: RuntimeContext,
  { instance, spec }: StartOrder,
  { source, precreated, hostResources, planned }: Plan,
  signal: AbortSignal,
): Promise<{ readonly setup: ContainerSetup; readonly record: InstanceRecord }> {
  const name = planned.container.id;
  const paths = ctx.files.paths(instance);
  const hostname = bareSandboxId(instance.sandboxId);
  const networkAndLimits = { network: spec.network, resources: withDefaults(spec.resources) };
  const order = { name, paths, source, upper: planned.upper, hostname, hostResources, networkAndLimits };
  const settled = async (setup: ContainerSetup) => {
    await applyNetworkAndLimits(ctx, setup, networkAndLimits);
    return setup;
  };
  const tasks = [
    precreated === undefined ? setUpContainer(ctx, order, signal) : settled(precreated),
    // From here on the instance is found by whoever looks for what is left over.
    ctx.files.write(instance, planned),
  ] as const;
  const [, written] = await Promise.allSettled(tasks);
  if (written.status === 'rejected') await giveUp(ctx, planned);
  const [setup] = await Promise.all(tasks);
  const { container, attachment } = setup;
  const record = { ...planned, container, guestAddress: attachment.guestAddress };
  if (hostResources === undefined) await ctx.files.write(instance, record);
  return { setup, record };
}

/** What a memory image needs must be what it had; a boot takes what there is now. */
export async function containerSourceFor(
  ctx: RuntimeContext,
  needs: GvisorNeeds,
  use: 'memory' | 'files',
): Promise<ContainerSource> {
  const tools = use === 'memory' ? await openGuestTools(ctx.toolsDir, needs.tools) : ctx.tools;
  const system = needs.root === 'base' ? await ctx.base.current() : null;
  const binary = use === 'memory' ? keptBinary(ctx, needs.runsc) : ctx.binaries.current;
  return { root: needs.root, lower: needs.layers, tools, system, binary };
}

function keptBinary({ binaries }: RuntimeContext, digest: string): RunscBinary {
  const kept = binaries.find(digest);
  if (kept !== undefined) return kept;
  throw new TorporError('checkpoint_incompatible', 'The runsc that wrote the memory is no longer kept.');
}

function recordOf(
  ctx: RuntimeContext,
  { instance, spec }: StartOrder,
  source: ContainerSource,
  upper: InstanceRecord['upper'],
  hostResources: HostResources | undefined,
): InstanceRecord {
  const { bundle, logs, rootfs } = ctx.files.paths(instance);
  const runsc = containerProgram(source.binary);
  const own = { id: instanceName(ctx.tag, instance), bundle, logs, netns: null, runsc };
  return {
    version: 1,
    container: hostResources?.container ?? own,
    rootfs: hostResources?.rootfs ?? rootfs,
    root: source.root,
    upper,
    lower: source.lower,
    merged: null,
    tools: source.tools.fingerprint,
    system: source.system?.fingerprint ?? null,
    runsc: source.binary.digest,
    guestAddress: hostResources?.attachment.guestAddress ?? '',
    token: secret(),
    credential: secret(),
    network: spec.network,
    resources: spec.resources,
    sealedFor: null,
  };
}

/** Of an instance that could not be written down nobody would know what it has taken. */
async function giveUp(ctx: RuntimeContext, { container, rootfs, upper }: InstanceRecord): Promise<void> {
  const { id: name, bundle } = container;
  const unhurried = new AbortController().signal;
  await tearDownContainer(ctx, { name, bundle, rootfs, directory: dirname(bundle) }, unhurried);
  await ctx.layers.remove(upper);
}

/**
 * An image that is there and whole, and that runsc does not take twice, is one that it cannot use. Once may be
 * the machine's fault, and what would be lost for it are all processes.
 */
async function restore(
  { runsc, images, report }: RuntimeContext,
  { container, preparedRestore }: ContainerSetup,
  from: SealedCheckpoint,
  signal: AbortSignal,
): Promise<void> {
  const packed = join(from.path ?? '', MEMORY);
  const restoreIt = (into: Pick<PreparedRestore, 'restore'>) =>
    images.use(from.id, packed, (image) => into.restore(image, signal));
  const anew = { restore: (image: string) => runsc.restore(container, image, signal) };
  try {
    await restoreIt(preparedRestore ?? anew);
  } catch (thrown) {
    signal.throwIfAborted();
    if (!isRefusal(thrown)) throw thrown;
    report('a memory image was not taken, and is tried again', { checkpointId: from.id, error: thrown });
    await runsc.end(container, signal);
    await runsc.forget(container.id);
    // It may be what was at hand that has suffered.
    await images.forget(from.id);
    await restoreIt(anew).catch((again: unknown) => {
      signal.throwIfAborted();
      throw isRefusal(again) ? incompatible(from, again) : again;
    });
  }
}

function isRefusal(thrown: unknown): thrown is TorporError {
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
) {
  await leaveCredential(mounts.reach(rootfs), credential);
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
