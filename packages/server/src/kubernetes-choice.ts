/** Opens a Kubernetes runtime from the TORPOR_KUBERNETES_… variables. */
import type { Clock, Report, Runtime } from '@torpor/engine';
import type { RuntimeSettings } from '@torpor/runtime-shared';

interface Opened {
  readonly runtime: Runtime;
  readonly limits: readonly string[];
  close(): Promise<void>;
}

export async function openKubernetes(
  which: 'kubernetes' | 'agent-sandbox',
  ctx: {
    readonly dataDir: string;
    /** Of a node: the home of the objects of all nodes. */
    readonly sharedHome?: string | undefined;
    readonly settings: RuntimeSettings;
    readonly clock: Clock;
    readonly report: Report;
  },
  env: NodeJS.ProcessEnv = process.env,
): Promise<Opened> {
  // Loaded only here, because the client of Kubernetes is large.
  const { readPodSettings } = await import('@torpor/pods');
  const options = { ...ctx, podSettings: readPodSettings(env) };
  if (which === 'kubernetes') {
    const { kubernetesRuntime } = await import('@torpor/runtime-kubernetes');
    const runtime = await kubernetesRuntime(options);
    return {
      runtime,
      limits: ['Pods cannot be paused: their files end with them.'],
      close: () => runtime.close(),
    };
  }
  const { agentSandboxRuntime } = await import('@torpor/runtime-agent-sandbox');
  const runtime = await agentSandboxRuntime(options);
  return { runtime, limits: [], close: () => runtime.close() };
}
