/**
 * The lower bounds of `bench:kubernetes`: the objects that the runtimes make, made by hand, with the same pod and the same
 * init container, and a command through the same agent. No engine, no database, no record of anything.
 */
import { randomBytes } from 'node:crypto';
import { type Instance, systemClock } from '@torpor/engine';
import { AGENT_PORT } from '@torpor/envd';
import {
  agentClient,
  CREDENTIAL_KEY,
  type OwnerReference,
  openPodWorlds,
  type Pod,
  type PodWorld,
  podSpec,
  podState,
  poolCredential,
  type ReachedPod,
  reachedPod,
  readPodSettings,
  setUpAgent,
} from '@torpor/pods';
import type { SandboxId } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';

const never = new AbortController().signal;
const ask = { what: 'answer', signal: never };
const POLL_MS = 10;
const AGENTS = 'agents.x-k8s.io/v1beta1';
const EXTENSIONS = 'extensions.agents.x-k8s.io/v1beta1';

export interface BareCluster {
  readonly world: PodWorld;
  close(): Promise<void>;
}

export async function openBare(dataDir: string, variables: NodeJS.ProcessEnv): Promise<BareCluster> {
  const { all, close } = await openPodWorlds({
    dataDir,
    runtime: 'bare',
    podSettings: readPodSettings(variables),
    settings: DEFAULT_RUNTIME_SETTINGS,
    clock: systemClock,
    report: () => {},
  });
  const [world] = all;
  if (world === undefined) throw new Error('There is no namespace.');
  return { world, close };
}

function newInstance(): Instance {
  return { sandboxId: `sbx_${randomBytes(10).toString('hex')}` as SandboxId, generation: 1 };
}

function pathOf({ podSettings }: PodWorld, kind: string): string {
  const at = `namespaces/${podSettings.namespace}/${kind}`;
  if (kind === 'sandboxes') return `/apis/${AGENTS}/${at}`;
  return kind === 'sandboxclaims' ? `/apis/${EXTENSIONS}/${at}` : `/api/v1/${at}`;
}

/** Makes an object, runs a command in it, and removes it after the measurement. */
export interface Bare {
  run(): Promise<void>;
  remove(): Promise<void>;
}

export function barePod(world: PodWorld): Bare {
  return bareObject(world, 'pods', (name, spec) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { 'torpor.dev/home': world.home } },
    spec,
  }));
}

export function bareSandbox(world: PodWorld): Bare {
  const { volumeMb, storageClass } = world.podSettings;
  return bareObject(world, 'sandboxes', (name, spec) => ({
    apiVersion: AGENTS,
    kind: 'Sandbox',
    metadata: { name },
    spec: {
      podTemplate: { metadata: { labels: { 'torpor.dev/home': world.home } }, spec },
      volumeClaimTemplates: [
        {
          metadata: { name: 'home' },
          spec: {
            accessModes: ['ReadWriteOnce'],
            resources: { requests: { storage: `${volumeMb}Mi` } },
            storageClassName: storageClass,
          },
        },
      ],
    },
  }));
}

function bareObject(
  world: PodWorld,
  kind: 'pods' | 'sandboxes',
  bodyOf: (name: string, spec: object) => object,
): Bare {
  let made: Instance | undefined;
  const nameOf = ({ sandboxId }: Instance) => `sbx-${sandboxId.slice(4)}-1`;
  return {
    run: async () => {
      const instance = newInstance();
      made = instance;
      const token = randomBytes(32).toString('hex');
      const spec = { org: 'default', env: {}, services: [], network: {}, resources: {} };
      await world.secrets.make(instance, { token, spec }, never);
      const name = nameOf(instance);
      const pod = podSpec({
        settings: world.podSettings,
        image: world.podSettings.image,
        resources: {},
        sandboxId: instance.sandboxId,
        secretName: name,
        ...(kind === 'sandboxes' ? { homeVolume: 'home' } : {}),
      });
      await world.cluster.create(pathOf(world, kind), { ...ask, body: bodyOf(name, pod) });
      await firstCommand(world, instance, await untilRunning(world, name), token);
    },
    remove: async () => {
      if (made === undefined) return;
      await world.secrets.remove(made, never);
      await removed(world, kind, nameOf(made));
    },
  };
}

/** Takes a Sandbox from the warm pool that the server has made. */
export function bareClaim(world: PodWorld, pool: string): Bare {
  let claim = '';
  return {
    run: async () => {
      const instance = newInstance();
      claim = `claim-${instance.sandboxId.slice(4)}`;
      const body = {
        apiVersion: EXTENSIONS,
        kind: 'SandboxClaim',
        metadata: { name: claim },
        spec: { warmPoolRef: { name: pool } },
      };
      await world.cluster.create(pathOf(world, 'sandboxclaims'), { ...ask, body });
      const pod = await untilRunning(world, await boundSandbox(world, claim));
      const secret = await world.cluster.get<{ data: Record<string, string> }>(
        `${pathOf(world, 'secrets')}/${pool}`,
        ask,
      );
      const key = Buffer.from(secret.data[CREDENTIAL_KEY] ?? '', 'base64').toString('utf8');
      await firstCommand(world, instance, pod, poolCredential(key, pod.uid));
    },
    remove: () => removed(world, 'sandboxclaims', claim),
  };
}

async function boundSandbox(world: PodWorld, claim: string): Promise<string> {
  for (;;) {
    const path = `${pathOf(world, 'sandboxclaims')}/${claim}`;
    const { status } = await world.cluster.get<{ status?: { sandbox?: { name?: string } } }>(path, ask);
    if (status?.sandbox?.name !== undefined && status.sandbox.name !== '') return status.sandbox.name;
    await systemClock.sleep(POLL_MS);
  }
}

async function untilRunning({ pods }: PodWorld, name: string): Promise<ReachedPod> {
  for (;;) {
    const pod: Pod | undefined = await pods.find(name, never);
    const reached = pod === undefined || podState(pod).is !== 'running' ? undefined : reachedPod(pod);
    if (reached !== undefined) return reached;
    await systemClock.sleep(POLL_MS);
  }
}

async function firstCommand(
  { reach, settings, clock }: PodWorld,
  instance: Instance,
  pod: ReachedPod,
  credential: string,
): Promise<void> {
  const address = await reach.to(pod, AGENT_PORT);
  const spec = { org: 'default', env: {}, services: [] };
  const secret = { token: credential, spec };
  const idle = { check: async () => {}, dial: async () => null };
  await setUpAgent({ instance, secret, credential, address, clock, settings, ...idle }, never);
  const agent = agentClient(address, credential);
  try {
    const process = { cmd: '/bin/sh', args: ['-c', 'true'], envs: {} };
    for await (const _ of agent.process.start({ process, stdin: false })) void _;
  } finally {
    agent.close();
    await reach.close(pod);
  }
}

async function removed(world: PodWorld, kind: string, name: string): Promise<void> {
  const path = `${pathOf(world, kind)}/${name}`;
  const body = { propagationPolicy: 'Foreground', gracePeriodSeconds: 1 };
  await world.cluster.remove(path, { ...ask, body });
  while (
    await world.cluster.get<{ metadata: { ownerReferences?: OwnerReference[] } }>(path, ask).then(
      () => true,
      () => false,
    )
  )
    await systemClock.sleep(100);
}
