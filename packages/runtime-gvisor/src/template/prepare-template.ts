/**
 * The first checkpoint of a template: booted once, sealed with its agent and its services running, so that create
 * is a restore. Its root is this machine's system, or what somebody brought.
 */
import { join } from 'node:path';
import type { Captured, Staging, TemplateSpec } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import type { LayerId } from '@torpor/layers';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { declaredPort, startServices } from '@torpor/runtime-shared';
import { captured, writeImage } from '../capture.ts';
import type { StackedLayer } from '../checkpoint-needs.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  setUpContainer,
  tearDownContainer,
} from '../container/container-setup.ts';
import { makeBaseRoot } from '../guest/base-root.ts';
import { leaveCredential } from '../guest/boot-credential.ts';
import { makeRoot } from '../guest/rootfs-template.ts';
import { setUpAgent } from '../instance/agent-setup.ts';
import { pathsIn } from '../instance/instance-files.ts';
import { withDefaults } from '../limits/default-limits.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { secret } from '../start.ts';
import { withinLimits } from './template-limits.ts';

export async function prepareTemplate(
  ctx: RuntimeContext,
  order: TemplateSpec,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  if (order.root.kind === 'builtin' && order.name !== 'base') {
    throw new TorporError('capability_unsupported', `gVisor has no template "${order.name}" of its own.`);
  }
  const { layers, owned } = ctx;
  const { checkpointId } = staging;
  const bottom = await layers.create();
  const upper = await layers.create();
  const binary = ctx.binaries.current;
  await owned.set(checkpointId, { layers: [upper, bottom], runsc: binary.digest });
  await order.progress('unpacking');
  const ends = await fillRoot(ctx, order, layers.path(bottom), signal);
  const { nonce } = await layers.seal(bottom, signal);
  const under: StackedLayer = { id: bottom, nonce, owner: checkpointId };
  const source: ContainerSource = { ...ends, lower: [under], tools: ctx.tools, binary };
  await bootAndCapture(ctx, order, staging, source, upper, signal);
  const top: StackedLayer = {
    id: upper,
    nonce: (await layers.seal(upper, signal)).nonce,
    owner: checkpointId,
  };
  const { root, tools, system } = source;
  const about = {
    root,
    tools: tools.fingerprint,
    system: system?.fingerprint ?? null,
    runsc: binary.digest,
  };
  return captured(ctx, about, [top, under], checkpointId, true, order.name);
}

async function fillRoot(
  { base }: RuntimeContext,
  { root }: TemplateSpec,
  into: string,
  signal: AbortSignal,
): Promise<Pick<ContainerSource, 'root' | 'system'>> {
  if (root.kind === 'builtin') {
    const system = await base.current();
    await makeBaseRoot(into, system.directories);
    return { root: 'base', system };
  }
  await makeRoot({ archive: root.path }, into, signal).catch((thrown: unknown) => {
    throw withoutPath(thrown, root.path);
  });
  return { root: 'own', system: null };
}

/** Where the archive lies on this machine is nobody's business who sent it. */
function withoutPath(thrown: unknown, path: string): unknown {
  if (!(thrown instanceof TorporError) || thrown.code !== 'invalid_request') return thrown;
  const said = (text: string) => text.replaceAll(path, 'the archive');
  return new TorporError(thrown.code, said(thrown.message), { hint: said(thrown.hint), cause: thrown });
}

async function bootAndCapture(
  ctx: RuntimeContext,
  order: TemplateSpec,
  staging: Staging,
  source: ContainerSource,
  upper: LayerId,
  signal: AbortSignal,
): Promise<void> {
  const { tag, preparedDir, runsc, network } = ctx;
  const number = staging.checkpointId.slice(-12);
  const name = `${tag}-template-${number}`;
  const directory = join(preparedDir, number);
  const paths = pathsIn(directory);
  const credential = secret();
  const limits = withDefaults({});
  // What starts in it may need to fetch something, as in any sandbox.
  const policy = order.services.length === 0 ? ({ mode: 'none' } as const) : {};
  const networkAndLimits = { network: policy, resources: limits };
  const wanted = { name, paths, source, upper, hostname: 'sandbox', networkAndLimits };
  try {
    await order.progress('booting');
    const setup = await setUpContainer(ctx, wanted, signal);
    await withinLimits(ctx, { name, upper, limits }, signal, async (own) => {
      await boot(ctx, order, setup, credential, own);
      // While its programs still run, so that they hear of it.
      await network.reset(name);
      await runsc.pause(setup.container, own);
    });
    await order.progress('capturing');
    await writeImage(ctx, { container: setup.container, credential }, staging, async () => {}, signal);
  } finally {
    await tearDownContainer(
      ctx,
      { name, directory, bundle: paths.bundle, rootfs: paths.rootfs },
      unhurried(),
    );
  }
}

/** Resolves when its services are ready. */
async function boot(
  { runsc, clock, settings, mounts }: RuntimeContext,
  order: TemplateSpec,
  { container, rootfs, attachment }: ContainerSetup,
  credential: string,
  signal: AbortSignal,
): Promise<void> {
  await leaveCredential(mounts.reach(rootfs), credential);
  await runsc.run(container, signal);
  const { agent } = await setUpAgent(
    {
      attachment,
      credential,
      token: secret(),
      nextCredential: credential,
      sandboxId: bareSandboxId(`sbx_${'0'.repeat(20)}`),
      hostname: 'sandbox',
      env: order.env,
      processes: withDefaults({}).processes,
      isRestored: false,
      isAlive: async () => (await runsc.recordedState(container.id)).is !== 'gone',
    },
    clock,
    signal,
  );
  try {
    await agent.warmUp({ signal });
    if (order.services.length > 0) await order.progress('starting services');
    const dial = dialThrough(agent, attachment.guestAddress, signal);
    await startServices({ agent, clock, settings, portFor: declaredPort, dial }, order.services, signal);
  } finally {
    agent.close();
  }
}

function dialThrough(agent: AgentClient, host: string, signal: AbortSignal) {
  return async (port: number) => {
    const reached = await agent.forward(port, { signal });
    return reached === null ? null : { host, port: reached };
  };
}

/** What was made is taken away, also when whoever asked for it has given up. */
function unhurried(): AbortSignal {
  return new AbortController().signal;
}
