/**
 * The pod of a sandbox. The agent, Node and their libraries come from an image of ours into an `emptyDir`, so that any image
 * can be a sandbox. The credential of the start goes from a Secret through the init container into a file that the agent
 * removes once it has read it: the sandbox's container never mounts the Secret, and no variable holds it.
 */

import { createHmac } from 'node:crypto';
import { AGENT_PORT } from '@torpor/envd';
import type { Resources } from '@torpor/protocol';
import type { PodSettings } from './pod-settings.ts';

/** The container of the sandbox's programs, and the init container. */
const CONTAINER = 'sandbox';
const INIT_CONTAINER = 'torpor-agent';

/** Paths in the sandbox's container. */
const TOOLS = '/.torpor/tools';
const RUN = '/.torpor/run';
export const HOME = '/home/user';
export const USER = 'user';

/** Where the agent image has the tools, and where its program copies them. */
export const IMAGE_TOOLS = '/torpor-tools';
const COPY_INTO = '/copy/tools';
const CREDENTIAL_INTO = '/copy/run';
const SECRET_AT = '/credential';
/** The key of the Secret that has the credential. */
export const CREDENTIAL_KEY = 'credential';

export interface PodOrder {
  readonly settings: PodSettings & { readonly agentImage: string };
  readonly image: string;
  readonly resources: Resources;
  /** Undefined: a pod of a warm pool, which waits for its sandbox. */
  readonly sandboxId: string | undefined;
  /** The Secret with the credential of the start, or with the key of the warm pool. */
  readonly secretName: string;
  /** The name of the volume of the home directory; absent: an `emptyDir` that dies with the pod. */
  readonly homeVolume?: string;
}

const SMALL = { cpu: '10m', memory: '64Mi' } as const;

/** The command that loads Node with the libraries of the tools, whatever the image has. */
function node(at: string): string[] {
  return [`${at}/lib/loader`, '--library-path', `${at}/lib`, `${at}/node`];
}

/** The shell of no image is needed: Node copies. The credential is readable by the sandbox's user alone. */
function copyProgram(credential: string): string {
  return `const fs = require('node:fs');
fs.cpSync('${IMAGE_TOOLS}', '${COPY_INTO}', { recursive: true });
const secret = fs.readFileSync('${SECRET_AT}/${CREDENTIAL_KEY}');
fs.writeFileSync('${CREDENTIAL_INTO}/credential', ${credential}, { mode: 0o600 });`;
}
const COPY = copyProgram('secret');
/** As `poolCredential`. The key stays in the init container: no program of a sandbox can read it. */
const COPY_IN_POOL = copyProgram(
  `require('node:crypto').createHmac('sha256', secret).update(process.env.POD_UID).digest('hex')`,
);
const POD_UID = { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } };

/** The credential with which the agent of a pod of a warm pool is set up the first time. */
export function poolCredential(key: string, podUid: string): string {
  return createHmac('sha256', key).update(podUid).digest('hex');
}

export function podSpec(order: PodOrder): Record<string, unknown> {
  const { settings, image, secretName } = order;
  const { user, pullPolicy: imagePullPolicy } = settings;
  const isPooled = order.sandboxId === undefined;
  const securityContext = {
    allowPrivilegeEscalation: false,
    capabilities: { drop: ['ALL'] },
    runAsNonRoot: user !== 0,
  };
  const home = order.homeVolume ?? 'home';
  return {
    restartPolicy: 'Never',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    // The agent ends its processes within a second.
    terminationGracePeriodSeconds: 3,
    // Process 1 is then the pause program of the pod, which reaps orphans.
    shareProcessNamespace: true,
    securityContext: {
      runAsUser: user,
      runAsGroup: user,
      fsGroup: user,
      // Without this, every start would change the owner of all files of a volume.
      fsGroupChangePolicy: 'OnRootMismatch',
      seccompProfile: { type: 'RuntimeDefault' },
    },
    ...(settings.pullSecrets.length === 0
      ? {}
      : { imagePullSecrets: settings.pullSecrets.map((name) => ({ name })) }),
    ...(settings.runtimeClass === undefined ? {} : { runtimeClassName: settings.runtimeClass }),
    ...(settings.nodeSelector === undefined ? {} : { nodeSelector: settings.nodeSelector }),
    ...(settings.tolerations === undefined ? {} : { tolerations: settings.tolerations }),
    initContainers: [
      {
        name: INIT_CONTAINER,
        image: settings.agentImage,
        imagePullPolicy,
        command: [...node(IMAGE_TOOLS), '-e', isPooled ? COPY_IN_POOL : COPY],
        ...(isPooled ? { env: [POD_UID] } : {}),
        resources: { requests: SMALL, limits: { memory: '512Mi' } },
        securityContext: { ...securityContext, readOnlyRootFilesystem: true },
        volumeMounts: [
          { name: 'tools', mountPath: COPY_INTO },
          { name: 'run', mountPath: CREDENTIAL_INTO },
          { name: 'credential', mountPath: SECRET_AT, readOnly: true },
        ],
      },
    ],
    containers: [
      {
        name: CONTAINER,
        image,
        imagePullPolicy,
        command: [...node(TOOLS), `${TOOLS}/agent/agent.mjs`, ...agentFlags(order)],
        // The name and the home of a user that the image may not know.
        env: [{ name: 'HOME', value: HOME }],
        ports: [{ name: 'agent', containerPort: AGENT_PORT }],
        resources: containerResources(settings, order.resources),
        securityContext,
        volumeMounts: [
          { name: 'tools', mountPath: TOOLS, readOnly: true },
          { name: 'run', mountPath: RUN },
          { name: home, mountPath: HOME },
        ],
      },
    ],
    volumes: [
      { name: 'tools', emptyDir: {} },
      { name: 'run', emptyDir: {} },
      { name: 'credential', secret: { secretName, defaultMode: 0o440 } },
      ...(order.homeVolume === undefined ? [{ name: 'home', emptyDir: homeLimit(order.resources) }] : []),
    ],
  };
}

function agentFlags({ sandboxId }: PodOrder): string[] {
  return [
    ...['--listen', `0.0.0.0:${AGENT_PORT}`, '--user', USER, '--home', HOME],
    ...(sandboxId === undefined ? ['--warm-up'] : ['--sandbox-id', sandboxId]),
    // With the home directory, the records of delivered turns survive where it is on a volume.
    ...['--credential-file', `${RUN}/credential`, '--state-dir', `${HOME}/.torpor`],
  ];
}

function homeLimit({ diskMb }: Resources): object {
  return diskMb === undefined ? {} : { sizeLimit: `${diskMb}Mi` };
}

/** Memory is reserved as it is limited, so that a node is never promised twice. */
function containerResources(settings: PodSettings, resources: Resources): object {
  const memory = `${resources.memoryMb ?? settings.memoryMb}Mi`;
  const { cpus, diskMb } = resources;
  const storage = diskMb === undefined ? {} : { 'ephemeral-storage': `${diskMb}Mi` };
  return {
    requests: { memory, cpu: cpus === undefined ? settings.cpuRequest : String(cpus), ...storage },
    limits: { memory, ...(cpus === undefined ? {} : { cpu: String(cpus) }), ...storage },
  };
}
