/** Starting an instance from a checkpoint: a berth, its memory or a boot, its agent, its services. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Address, Instance, SealedCheckpoint, Started, StartSpec } from '@torpor/engine';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { setUpAgent } from './agent-door.ts';
import { type Berth, makeBerth, type Stack } from './berth.ts';
import type { Berths } from './berths.ts';
import { bringUpServices, knockAtServices } from './bring-up-services.ts';
import { type GvisorNeeds, MEMORY, needsOf, readSecrets } from './checkpoint-needs.ts';
import { withDefaults } from './default-limits.ts';
import type { Ground } from './ground.ts';
import { leaveCredential } from './guest/boot-credential.ts';
import { openGuestTools } from './guest/guest-tools.ts';
import type { InstanceRecord } from './instance-files.ts';
import { instanceName } from './instance-names.ts';

export interface StartOrder {
  readonly instance: Instance;
  readonly from: SealedCheckpoint;
  readonly use: 'memory' | 'files';
  readonly spec: StartSpec;
  /** Where a port of the instance can be dialled. */
  readonly dial: (port: number) => Promise<Address | null>;
}

export async function startInstance(
  ground: Ground,
  berths: Berths,
  order: StartOrder,
  signal: AbortSignal,
): Promise<Started> {
  const { instance, from, use, spec } = order;
  const needs = needsOf(from);
  const stack = await stackFor(ground, needs, use);
  const hostname = bareSandboxId(instance.sandboxId);
  const secrets = use === 'memory' ? await readSecrets(from) : { credential: secret() };

  const ahead = use === 'memory' ? await berths.take(from.id, stack) : undefined;
  const paths = await ground.files.make(instance);
  const upper = ahead?.upper ?? (await ground.layers.create());
  const record = recordOf(ground, order, stack, upper, ahead);
  // From here on the instance is found by whoever looks for what is left over.
  await ground.files.write(instance, record);
  const berth =
    ahead ?? (await makeBerth(ground, { ...orderOf(record, spec), paths, stack, upper, hostname }, signal));
  if (ahead !== undefined) await settleIn(ground, ahead, spec);
  const alive: InstanceRecord = {
    ...record,
    container: berth.container,
    rootfs: berth.rootfs,
    guestAddress: berth.attachment.guestAddress,
  };
  if (ahead === undefined) await ground.files.write(instance, alive);
  signal.throwIfAborted();

  if (use === 'memory') await restore(ground, berth, from, signal);
  else await boot(ground, berth, secrets.credential, signal);
  const ready = use === 'memory' ? knockAtServices(berth.attachment.guestAddress, spec, signal) : [];
  const agent = await setUpAgent(
    {
      attachment: berth.attachment,
      credential: secrets.credential,
      token: alive.token,
      nextCredential: alive.credential,
      sandboxId: instance.sandboxId,
      hostname,
      env: spec.env,
      processes: withDefaults(spec.resources).processes,
      isBack: use === 'memory',
      isAlive: async () => (await ground.runsc.glance(berth.container.id)).is !== 'gone',
    },
    ground.clock,
    signal,
  );
  try {
    await bringUpServices(ground, order, agent, ready, signal);
  } finally {
    agent.close();
  }
  if (use === 'memory') return { kind: 'memory', lost: [] };
  return { kind: 'files', lost: needs.template === null ? ['processes'] : [] };
}

/** What a memory image needs must be what it had; a boot takes what there is now. */
export async function stackFor(ground: Ground, needs: GvisorNeeds, use: 'memory' | 'files'): Promise<Stack> {
  const tools = use === 'memory' ? await openGuestTools(ground.shelf, needs.tools) : ground.tools;
  const system = needs.root === 'base' ? await ground.base.current() : null;
  return { root: needs.root, lower: needs.layers, tools, system };
}

function recordOf(
  ground: Ground,
  { instance, spec }: StartOrder,
  stack: Stack,
  upper: InstanceRecord['upper'],
  ahead: Berth | undefined,
): InstanceRecord {
  const paths = ground.files.paths(instance);
  const id = ahead?.container.id ?? instanceName(ground.tag, instance);
  return {
    version: 1,
    container: ahead?.container ?? { id, bundle: paths.bundle, logs: paths.logs, netns: null },
    rootfs: ahead?.rootfs ?? paths.rootfs,
    root: stack.root,
    upper,
    lower: stack.lower,
    merged: null,
    tools: stack.tools.fingerprint,
    system: stack.system?.fingerprint ?? null,
    guestAddress: ahead?.attachment.guestAddress ?? '',
    token: secret(),
    credential: secret(),
    network: spec.network,
    resources: spec.resources,
    sealedFor: null,
  };
}

function orderOf({ container }: InstanceRecord, { network, resources }: StartSpec) {
  return { name: container.id, network, resources: withDefaults(resources) };
}

/** A container that was made for nobody gets what this sandbox was promised. */
async function settleIn({ network, cgroups }: Ground, { container }: Berth, spec: StartSpec): Promise<void> {
  network.setPolicy(container.id, spec.network);
  await cgroups?.limit(container.id, withDefaults(spec.resources));
}

/**
 * An image that is there and whole, and that runsc does not take twice, is one that it cannot use. Once may be
 * the machine's fault, and what would be lost for it are all processes.
 */
async function restore(
  { runsc, images, report }: Ground,
  { container }: Berth,
  from: SealedCheckpoint,
  signal: AbortSignal,
): Promise<void> {
  const packed = join(from.path ?? '', MEMORY);
  const restoreIt = () => images.use(from.id, packed, (image) => runsc.restore(container, image, signal));
  try {
    await restoreIt();
  } catch (thrown) {
    signal.throwIfAborted();
    if (!isRefusal(thrown)) throw thrown;
    report('a memory image was not taken, and is tried again', { checkpointId: from.id, error: thrown });
    await runsc.end(container, signal);
    await runsc.forget(container.id);
    // It may be what was at hand that has suffered.
    await images.forget(from.id);
    await restoreIt().catch((again: unknown) => {
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
  { runsc }: Ground,
  { container, rootfs }: Berth,
  credential: string,
  signal: AbortSignal,
) {
  await leaveCredential(rootfs, credential);
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
