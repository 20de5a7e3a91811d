/** Starting an instance from a checkpoint: a berth, its memory or a boot, its agent, its services. */
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { setUpAgent } from './agent-door.ts';
import {
  type Berth,
  clearBerth,
  containerProgram,
  type Mooring,
  makeBerth,
  type Stack,
  settle,
} from './berth.ts';
import type { Berths } from './berths.ts';
import type { RunscBinary } from './binaries/runsc-binaries.ts';
import { bringUpServices, knockAtServices } from './bring-up-services.ts';
import { type GvisorNeeds, MEMORY, needsOf, readSecrets } from './checkpoint-needs.ts';
import { withDefaults } from './default-limits.ts';
import type { Ground } from './ground.ts';
import { leaveCredential } from './guest/boot-credential.ts';
import { openGuestTools } from './guest/guest-tools.ts';
import type { InstanceRecord } from './instance-files.ts';
import { instanceName } from './instance-names.ts';
import type { Moorings } from './moorings.ts';
import type { PoisedRestore } from './runsc.ts';

export interface StartOrder {
  readonly instance: Instance;
  readonly from: SealedCheckpoint;
  readonly use: 'memory' | 'files';
  readonly spec: StartSpec;
  /** Where a port of the instance can be dialled. */
  readonly dial: (port: number) => Promise<Address | null>;
}

/** What was made before anybody asked. */
export interface Ahead {
  readonly berths: Berths;
  readonly moorings: Moorings;
}

export async function startInstance(
  ground: Ground,
  { berths, moorings }: Ahead,
  order: StartOrder,
  signal: AbortSignal,
): Promise<{ readonly started: Started; readonly record: InstanceRecord }> {
  const { instance, from, use, spec } = order;
  const needs = needsOf(from);
  const [stack, { credential }] = await Promise.all([
    stackFor(ground, needs, use),
    use === 'memory' ? readSecrets(from) : { credential: secret() },
  ]);
  await ground.files.make(instance);
  const ahead = use === 'memory' ? await berths.take(from.id, stack) : undefined;
  const upper = ahead?.upper ?? (await ground.layers.create());
  const mooring = ahead ?? (use === 'memory' ? moorings.take(stack) : undefined);
  const planned = recordOf(ground, order, stack, upper, mooring);
  const plan = { stack, ahead, mooring, planned };
  const { berth, record } = await berthFor(ground, order, plan, signal);
  const { attachment } = berth;
  signal.throwIfAborted();
  if (use === 'memory') await restore(ground, berth, from, signal);
  else await boot(ground, berth, credential, signal);

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
      isBack: use === 'memory',
      isAlive: async () => (await ground.runsc.glance(record.container.id)).is !== 'gone',
    },
    ground.clock,
    signal,
  );
  const knocks = use === 'memory' ? knockAtServices(attachment.guestAddress, spec, signal) : [];
  // Its sentry is recognised meanwhile, so that nobody has to wait for that afterwards.
  void ground.runsc.glance(record.container.id).catch(() => {});
  const { agent, tagged } = await settingUp;
  try {
    await bringUpServices(ground, order, { agent, tagged, knocks }, signal);
  } finally {
    agent.close();
  }
  const isFirst = needs.template !== null;
  const started: Started =
    use === 'memory' ? { kind: 'memory', lost: [] } : { kind: 'files', lost: isFirst ? [] : ['processes'] };
  return { started, record };
}

interface Plan {
  readonly stack: Stack;
  readonly ahead: Berth | undefined;
  readonly mooring: Mooring | undefined;
  readonly planned: InstanceRecord;
}

/** Gives the instance its berth, settled, and writes it down: before anything comes to life there. */
async function berthFor(
  ground: Ground,
  { instance, spec }: StartOrder,
  { stack, ahead, mooring, planned }: Plan,
  signal: AbortSignal,
): Promise<{ readonly berth: Berth; readonly record: InstanceRecord }> {
  const name = planned.container.id;
  const paths = ground.files.paths(instance);
  const hostname = bareSandboxId(instance.sandboxId);
  const terms = { network: spec.network, resources: withDefaults(spec.resources) };
  const order = { name, paths, stack, upper: planned.upper, hostname, mooring, terms };
  const settled = async (berth: Berth) => {
    await settle(ground, berth, terms);
    return berth;
  };
  const tasks = [
    ahead === undefined ? makeBerth(ground, order, signal) : settled(ahead),
    // From here on the instance is found by whoever looks for what is left over.
    ground.files.write(instance, planned),
  ] as const;
  const [, written] = await Promise.allSettled(tasks);
  if (written.status === 'rejected') await giveUp(ground, planned);
  const [berth] = await Promise.all(tasks);
  const { container, attachment } = berth;
  const record = { ...planned, container, guestAddress: attachment.guestAddress };
  if (mooring === undefined) await ground.files.write(instance, record);
  return { berth, record };
}

/** What a memory image needs must be what it had; a boot takes what there is now. */
export async function stackFor(ground: Ground, needs: GvisorNeeds, use: 'memory' | 'files'): Promise<Stack> {
  const tools = use === 'memory' ? await openGuestTools(ground.shelf, needs.tools) : ground.tools;
  const system = needs.root === 'base' ? await ground.base.current() : null;
  const binary = use === 'memory' ? keptBinary(ground, needs.runsc) : ground.binaries.current;
  return { root: needs.root, lower: needs.layers, tools, system, binary };
}

function keptBinary({ binaries }: Ground, digest: string): RunscBinary {
  const kept = binaries.find(digest);
  if (kept !== undefined) return kept;
  throw new TorporError('checkpoint_incompatible', 'The runsc that wrote the memory is no longer kept.');
}

function recordOf(
  ground: Ground,
  { instance, spec }: StartOrder,
  stack: Stack,
  upper: InstanceRecord['upper'],
  mooring: Mooring | undefined,
): InstanceRecord {
  const { bundle, logs, rootfs } = ground.files.paths(instance);
  const runsc = containerProgram(stack.binary);
  const own = { id: instanceName(ground.tag, instance), bundle, logs, netns: null, runsc };
  return {
    version: 1,
    container: mooring?.container ?? own,
    rootfs: mooring?.rootfs ?? rootfs,
    root: stack.root,
    upper,
    lower: stack.lower,
    merged: null,
    tools: stack.tools.fingerprint,
    system: stack.system?.fingerprint ?? null,
    runsc: stack.binary.digest,
    guestAddress: mooring?.attachment.guestAddress ?? '',
    token: secret(),
    credential: secret(),
    network: spec.network,
    resources: spec.resources,
    sealedFor: null,
  };
}

/** Of an instance that could not be written down nobody would know what it has taken. */
async function giveUp(ground: Ground, { container, rootfs, upper }: InstanceRecord): Promise<void> {
  const { id: name, bundle } = container;
  const unhurried = new AbortController().signal;
  await clearBerth(ground, { name, bundle, rootfs, directory: dirname(bundle) }, unhurried);
  await ground.layers.remove(upper);
}

/**
 * An image that is there and whole, and that runsc does not take twice, is one that it cannot use. Once may be
 * the machine's fault, and what would be lost for it are all processes.
 */
async function restore(
  { runsc, images, report }: Ground,
  { container, poised }: Berth,
  from: SealedCheckpoint,
  signal: AbortSignal,
): Promise<void> {
  const packed = join(from.path ?? '', MEMORY);
  const restoreIt = (into: Pick<PoisedRestore, 'restore'>) =>
    images.use(from.id, packed, (image) => into.restore(image, signal));
  const anew = { restore: (image: string) => runsc.restore(container, image, signal) };
  try {
    await restoreIt(poised ?? anew);
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
  { runsc, mounts }: Ground,
  { container, rootfs }: Berth,
  credential: string,
  signal: AbortSignal,
) {
  await leaveCredential(mounts.hostPath(rootfs), credential);
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
