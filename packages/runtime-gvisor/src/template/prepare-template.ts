/**
 * Prepares the first checkpoint of a template: boots it once and captures it with its agent and services running, so
 * that creating a sandbox is a restore. The root is the host's system (`base`) or an archive.
 */
import { join } from 'node:path';
import type { Captured, LayerReference, Staging, TemplateSpec } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import type { LayerId } from '@torpor/layers';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { declaredPort, startServices } from '@torpor/runtime-shared';
import { describeCapture, packMemory, writeMemory } from '../capture.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  setUpContainer,
  tearDownContainer,
} from '../container/container-setup.ts';
import { makeBaseRoot } from '../guest/base-root.ts';
import { writeBootCredential } from '../guest/boot-credential.ts';
import { makeRoot } from '../guest/rootfs-template.ts';
import { setUpAgent } from '../instance/agent-setup.ts';
import { pathsIn } from '../instance/instance-files.ts';
import { withDefaults } from '../limits/default-limits.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { secret } from '../start.ts';
import { withinLimits } from './template-limits.ts';

export async function prepareTemplate(
  ctx: RuntimeContext,
  spec: TemplateSpec,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  if (spec.root.kind === 'builtin' && spec.name !== 'base') {
    throw new TorporError(
      'capability_unsupported',
      `The gVisor runtime has no built-in template "${spec.name}".`,
    );
  }
  const { layers, layerStore } = ctx;
  const { checkpointId } = staging;
  const bottom = await layers.create();
  const upper = await layers.create();
  const binary = ctx.binaries.current;
  await layerStore.claim(checkpointId, { layers: [upper, bottom], runsc: binary.digest });
  await spec.progress('unpacking');
  const root = await fillRoot(ctx, spec, layers.path(bottom), signal);
  const { nonce } = await layers.seal(bottom, signal);
  const under: LayerReference = { id: bottom, nonce, owner: checkpointId };
  const source: ContainerSource = { ...root, lower: [under], tools: ctx.tools, binary };
  await bootAndCapture(ctx, spec, staging, source, upper, signal);
  const top: LayerReference = {
    id: upper,
    nonce: (await layers.seal(upper, signal)).nonce,
    owner: checkpointId,
  };
  const needs = {
    root: source.rootKind,
    tools: source.tools.fingerprint,
    system: source.system?.fingerprint ?? null,
    runsc: binary.digest,
  };
  return describeCapture(ctx, needs, [top, under], checkpointId, true, spec.name);
}

async function fillRoot(
  { base }: RuntimeContext,
  { root }: TemplateSpec,
  into: string,
  signal: AbortSignal,
): Promise<Pick<ContainerSource, 'rootKind' | 'system'>> {
  if (root.kind === 'builtin') {
    const system = await base.current();
    await makeBaseRoot(into, system.directories);
    return { rootKind: 'base', system };
  }
  await makeRoot({ archive: root.path }, into, signal).catch((thrown: unknown) => {
    throw withoutPath(thrown, root.path);
  });
  return { rootKind: 'own', system: null };
}

/** Removes the path of the archive on this host from an error: its sender must not learn it. */
function withoutPath(thrown: unknown, path: string): unknown {
  if (!(thrown instanceof TorporError) || thrown.code !== 'invalid_request') return thrown;
  const redact = (text: string) => text.replaceAll(path, 'the archive');
  return new TorporError(thrown.code, redact(thrown.message), { hint: redact(thrown.hint), cause: thrown });
}

async function bootAndCapture(
  ctx: RuntimeContext,
  spec: TemplateSpec,
  staging: Staging,
  source: ContainerSource,
  upper: LayerId,
  signal: AbortSignal,
): Promise<void> {
  const { serverTag, unassignedDir, runsc, network } = ctx;
  const number = staging.checkpointId.slice(-12);
  const name = `${serverTag}-template-${number}`;
  const directory = join(unassignedDir, number);
  const paths = pathsIn(directory);
  const credential = secret();
  const limits = withDefaults({});
  // Services may need to download something when they start.
  const policy = spec.services.length === 0 ? ({ mode: 'none' } as const) : {};
  const networkAndLimits = { network: policy, resources: limits };
  const options = { name, paths, source, upper, hostname: 'sandbox', networkAndLimits };
  try {
    await spec.progress('booting');
    const setup = await setUpContainer(ctx, options, signal);
    await withinLimits(ctx, { name, upper, limits }, signal, async (limited) => {
      await boot(ctx, spec, setup, credential, limited);
      // Reset connections while the programs run, so that they notice.
      await network.reset(name);
      await runsc.freeze(setup.container, limited);
    });
    await spec.progress('capturing');
    const image = await writeMemory(ctx, { container: setup.container, credential }, staging, signal);
    await packMemory(ctx, image, staging, signal);
  } finally {
    await tearDownContainer(
      ctx,
      { name, directory, bundle: paths.bundle, rootfs: paths.rootfs },
      neverAborted(),
    );
  }
}

/** Resolves when the services are ready. */
async function boot(
  { runsc, clock, settings, mounts }: RuntimeContext,
  spec: TemplateSpec,
  { container, rootfs, attachment }: ContainerSetup,
  credential: string,
  signal: AbortSignal,
): Promise<void> {
  await writeBootCredential(mounts.hostPath(rootfs), credential);
  await runsc.run(container, signal);
  const { agent } = await setUpAgent(
    {
      attachment,
      credential,
      token: secret(),
      nextCredential: credential,
      sandboxId: bareSandboxId(`sbx_${'0'.repeat(20)}`),
      hostname: 'sandbox',
      env: spec.env,
      processes: withDefaults({}).processes,
      isRestored: false,
      isAlive: async () => (await runsc.recordedState(container.id)).is !== 'gone',
    },
    clock,
    signal,
  );
  try {
    await agent.warmUp({ signal });
    if (spec.services.length > 0) await spec.progress('starting services');
    const dial = dialThrough(agent, attachment.guestAddress, signal);
    await startServices({ agent, clock, settings, portFor: declaredPort, dial }, spec.services, signal);
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

/** The container is torn down also when the caller has aborted. */
function neverAborted(): AbortSignal {
  return new AbortController().signal;
}
