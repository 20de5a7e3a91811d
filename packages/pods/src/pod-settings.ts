/** How the pods of sandboxes look: read from TORPOR_KUBERNETES_… variables, with safe defaults. */
import { orgIdSchema, TorporError } from '@torpor/protocol';
import { z } from 'zod';

/** RFC 1123 names, as Kubernetes accepts them. */
const name = z.string().regex(/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/, 'expected a name of Kubernetes');
const image = z.string().regex(/^[\w.:/@-]{1,512}$/, 'expected the name of an image');
const parsedJson = z.string().transform((text, ctx) => {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    ctx.addIssue({ code: 'custom', message: 'expected JSON' });
    return z.NEVER;
  }
});

const podSettingsSchema = z.object({
  /** The kubeconfig and the context in it. Undefined: as kubectl finds them, or the service account of the server. */
  config: z.string().min(1).optional(),
  context: z.string().min(1).optional(),
  /** The namespace of organisations that are not in `orgNamespaces`. */
  namespace: name.default('torpor-sandboxes'),
  /** Organisations with a namespace of their own: `{"acme":"acme-sandboxes"}` */
  orgNamespaces: parsedJson.pipe(z.record(orgIdSchema, name)).default({}),
  /** The image of the template `base`. */
  image: image.default('docker.io/library/node:24-bookworm'),
  /** The image whose files are the agent, Node and their libraries. An init container copies them into each pod. */
  agentImage: image.optional(),
  pullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']).default('IfNotPresent'),
  /** Names of Secrets with registry credentials, separated by commas. */
  pullSecrets: z
    .string()
    .transform((text) => text.split(',').map((one) => one.trim()))
    .pipe(z.array(name))
    .default([]),
  runtimeClass: name.optional(),
  /** `{"disk":"ssd"}` */
  nodeSelector: parsedJson.pipe(z.record(z.string(), z.string())).optional(),
  /** As in the spec of a pod: a list of tolerations. */
  tolerations: parsedJson.pipe(z.array(z.record(z.string(), z.unknown()))).optional(),
  /** The user of the sandbox's programs. 0 needs a namespace that allows root. */
  user: z.coerce.number().int().min(0).max(2_147_483_647).default(1000),
  /** The memory limit of a sandbox that names none. */
  memoryMb: z.coerce.number().int().min(32).default(1024),
  /** The processor time that a pod of a sandbox without a limit reserves. */
  cpuRequest: z
    .string()
    .regex(/^\d+(\.\d+)?m?$/)
    .default('100m'),
  /** How the server reaches pods. Undefined: by their addresses when it runs in the cluster, else through the API server. */
  reach: z.enum(['pod-ip', 'port-forward']).optional(),
  /** agent-sandbox: the storage class and the size of a sandbox's volume. */
  storageClass: name.optional(),
  volumeMb: z.coerce.number().int().min(1).default(1024),
  /** agent-sandbox: how many pods of the template `base` wait for a sandbox, in each namespace. */
  warmPool: z.coerce.number().int().min(0).max(10_000).default(0),
});

export type PodSettings = z.infer<typeof podSettingsSchema>;

const VARIABLES: Readonly<Record<keyof PodSettings, string>> = {
  config: 'TORPOR_KUBERNETES_CONFIG',
  context: 'TORPOR_KUBERNETES_CONTEXT',
  namespace: 'TORPOR_KUBERNETES_NAMESPACE',
  orgNamespaces: 'TORPOR_KUBERNETES_ORG_NAMESPACES',
  image: 'TORPOR_KUBERNETES_IMAGE',
  agentImage: 'TORPOR_KUBERNETES_AGENT_IMAGE',
  pullPolicy: 'TORPOR_KUBERNETES_PULL_POLICY',
  pullSecrets: 'TORPOR_KUBERNETES_PULL_SECRETS',
  runtimeClass: 'TORPOR_KUBERNETES_RUNTIME_CLASS',
  nodeSelector: 'TORPOR_KUBERNETES_NODE_SELECTOR',
  tolerations: 'TORPOR_KUBERNETES_TOLERATIONS',
  user: 'TORPOR_KUBERNETES_USER',
  memoryMb: 'TORPOR_KUBERNETES_MEMORY_MB',
  cpuRequest: 'TORPOR_KUBERNETES_CPU_REQUEST',
  reach: 'TORPOR_KUBERNETES_REACH',
  storageClass: 'TORPOR_KUBERNETES_STORAGE_CLASS',
  volumeMb: 'TORPOR_KUBERNETES_VOLUME_MB',
  warmPool: 'TORPOR_KUBERNETES_WARM_POOL',
};

/** An empty variable counts as not set. */
export function readPodSettings(env: NodeJS.ProcessEnv): PodSettings & { readonly agentImage: string } {
  const given = Object.entries(VARIABLES).map(([setting, variable]) => [setting, env[variable] || undefined]);
  const parsed = podSettingsSchema.safeParse(Object.fromEntries(given));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const setting = String(issue?.path[0]) as keyof PodSettings;
    throw new TorporError('invalid_request', `${VARIABLES[setting]}: ${issue?.message}.`, {
      hint: 'docs/runtimes/kubernetes.md lists every variable.',
    });
  }
  const { agentImage } = parsed.data;
  if (agentImage === undefined) {
    throw new TorporError('invalid_request', `${VARIABLES.agentImage} is not set.`, {
      hint: 'Make the image with `npm run build:agent-image`, push it to your registry, and name it there.',
    });
  }
  return { ...parsed.data, agentImage };
}
