/**
 * Prepares the first checkpoint of a template: boots it once and captures it with its agent and services running, so
 * that creating a sandbox is a restore. `template-root.ts` makes the bottom layer.
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Captured, LayerReference, Staging, TemplateSpec } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import { allDone } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { bareSandboxId, visibleProcessors } from '@torpor/protocol';
import { declaredPort, mapWriteErrors, startServices } from '@torpor/runtime-shared';
import { forgetBase } from '../base/build-base.mjs';
import { isChanged } from '../base/copy-base.ts';
import { writeMemory } from '../capture.ts';
import { describeCapture } from '../checkpoint-needs.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  setUpContainer,
  tearDownContainer,
} from '../container/container-setup.ts';
import { writeBootCredential } from '../guest/boot-credential.ts';
import { completeRoot, keepSearchPath } from '../guest/complete-root.ts';
import { imageUser } from '../guest/image-user.ts';
import { directoryInside } from '../guest/inside-root.ts';
import { setUpAgent } from '../instance/agent-setup.ts';
import { pathsIn } from '../instance/instance-files.ts';
import { withDefaults } from '../limits/default-limits.ts';
import { packMemory, readKnownLayers } from '../pack-memory.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { secret } from '../start.ts';
import { type ImageRoot, type ImageRootParts, makeImageRoot } from './image-root.ts';
import { withinLimits } from './template-limits.ts';
import { chooseRoot, fillRoot, type TemplateRoot } from './template-root.ts';

export async function prepareTemplate(
  ctx: RuntimeContext,
  spec: TemplateSpec,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const root = await chooseRoot(ctx, spec);
  try {
    return await prepareFrom(ctx, spec, root, staging, signal);
  } catch (thrown) {
    if (root.is !== 'copy' || !isChanged(thrown)) throw thrown;
    ctx.report('the root of "base" on this host is damaged, and is not used', { error: thrown });
    forgetBase(root.base);
    return prepareFrom(ctx, spec, await chooseRoot(ctx, spec, root.base), staging, signal);
  }
}

async function prepareFrom(
  ctx: RuntimeContext,
  spec: TemplateSpec,
  root: TemplateRoot,
  staging: Staging,
  signal: AbortSignal,
): Promise<Captured> {
  const { layers, layerStore } = ctx;
  const { checkpointId } = staging;
  const [upper, ownPages] = [await layers.create(), await layers.create()];
  const binary = ctx.binaries.current;
  const claim = (under: readonly LayerId[]) =>
    layerStore.claim(checkpointId, {
      layers: [upper, ownPages, ...under],
      runsc: binary.digest,
      tools: ctx.tools.fingerprint,
    });
  const parts = { owner: checkpointId, claim, signal };
  const { under, rootDigest, share } = await makeBottom(ctx, spec, root, parts).catch(
    async (thrown: unknown) => {
      if (isChanged(thrown)) await allDone(layers.remove(upper), layers.remove(ownPages));
      throw thrown;
    },
  );
  const source: ContainerSource = {
    rootKind: root.is === 'host' ? 'base' : 'own',
    system: root.is === 'host' ? root.system : null,
    lower: [under],
    tools: ctx.tools,
    binary,
  };
  const { user, pages } = await bootAndCapture(ctx, spec, staging, source, { upper, ownPages }, signal);
  await share?.();
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
  const captured = describeCapture(ctx, needs, [top, under], checkpointId, pages, {
    name: spec.name,
    rootDigest,
  });
  const kind = root.is === 'host' ? 'host' : 'own';
  const templateRoot = { kind, digest: rootDigest } as const;
  return { ...captured, templateRoot, ...(user === undefined ? {} : { templateUser: user }) };
}

/** Makes the sealed layer below the upper one. Every layer is claimed before it is filled. */
async function makeBottom(
  ctx: RuntimeContext,
  { progress }: TemplateSpec,
  root: TemplateRoot,
  parts: Pick<ImageRootParts, 'owner' | 'claim' | 'signal'>,
): Promise<Pick<ImageRoot, 'under'> & Partial<ImageRoot> & { readonly rootDigest: string | null }> {
  if (root.is === 'image') {
    const made = await makeImageRoot({ ctx, progress, ...parts }, root.image);
    return { ...made, rootDigest: root.image.about.digest.replace(/^sha256:/, '') };
  }
  const { layers } = ctx;
  const { owner, claim, signal } = parts;
  const id = root.is === 'layer' ? root.layer.id : await layers.create();
  await claim([id]);
  await progress('unpacking');
  const rootDigest = await fillRoot(root, layers.path(id), signal).catch(async (thrown: unknown) => {
    if (root.is === 'copy' && isChanged(thrown)) await layers.remove(id);
    throw thrown;
  });
  const { nonce } = root.is === 'layer' ? root.layer : await layers.seal(id, signal);
  return { under: { id, nonce, owner }, rootDigest };
}

interface BootedTemplate {
  /** The default user of a template from an image. */
  readonly user: string | undefined;
  /** The page layers of its memory. */
  readonly pages: readonly LayerReference[];
}

async function bootAndCapture(
  ctx: RuntimeContext,
  spec: TemplateSpec,
  staging: Staging,
  source: ContainerSource,
  { upper, ownPages }: { readonly upper: LayerId; readonly ownPages: LayerId },
  signal: AbortSignal,
): Promise<BootedTemplate> {
  const { serverTag, unassignedDir, runsc, network } = ctx;
  const number = staging.checkpointId.slice(-12);
  const name = `${serverTag}-template-${number}`;
  const directory = join(unassignedDir, number);
  const paths = pathsIn(directory);
  const credential = secret();
  const limits = withDefaults(spec.resources);
  // Services may need to download something when they start.
  const policy = spec.services.length === 0 ? ({ mode: 'none' } as const) : {};
  const networkAndLimits = { network: policy, resources: limits };
  const { memoryMb } = limits;
  const options = { name, paths, source, upper, hostname: 'sandbox', memoryMb, networkAndLimits };
  try {
    await spec.progress('booting');
    const setup = await setUpContainer(ctx, options, signal);
    const ofImage = await completeImage(ctx, spec, setup.rootfs);
    const user = spec.user ?? ofImage;
    await withinLimits(ctx, { name, upper, limits }, signal, async (limited) => {
      await boot(ctx, spec, setup, { credential, user }, limited);
      // Reset connections while the programs run, so that they notice.
      await network.reset(name);
      await runsc.freeze(setup.container, limited);
    });
    await spec.progress('capturing');
    const image = await writeMemory(ctx, { container: setup.container, credential }, staging, signal);
    const target = { own: ownPages, known: await readKnownLayers(ctx, []) };
    return { user, pages: await packMemory(ctx, image, target, staging, signal) };
  } finally {
    await tearDownContainer(
      ctx,
      { name, directory, bundle: paths.bundle, rootfs: paths.rootfs },
      neverAborted(),
    );
  }
}

/**
 * Completes the root of an image in the upper layer, because other templates share the layers below. Returns the account of
 * the image's USER.
 */
async function completeImage(
  { mounts }: RuntimeContext,
  { root, workdir }: TemplateSpec,
  rootfs: string,
): Promise<string | undefined> {
  if (root.kind !== 'image') return undefined;
  const path = mounts.hostPath(rootfs);
  return mapWriteErrors(rootfs, async () => {
    await completeRoot(path);
    await keepSearchPath(path, root.image.about.env['PATH']);
    if (workdir !== undefined) await directoryInside(path, workdir);
    return imageUser(path, root.image.about.user);
  });
}

/** Resolves when the services are ready. */
async function boot(
  { runsc, clock, settings, mounts }: RuntimeContext,
  spec: TemplateSpec,
  { container, rootfs, attachment }: ContainerSetup,
  { credential, user }: { readonly credential: string; readonly user: string | undefined },
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
      user,
      workdir: spec.workdir,
      processes: withDefaults(spec.resources).processes,
      processors: visibleProcessors(spec.resources, availableParallelism()),
      memory: 'none',
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
