/** Opens the runtime whose sandboxes are pods. */
import { openPodWorlds, type PodWorldOptions } from '@torpor/pods';
import { KUBERNETES_CAPABILITIES, KubernetesRuntime } from './kubernetes-runtime.ts';

export async function kubernetesRuntime(
  options: Omit<PodWorldOptions, 'runtime'>,
): Promise<KubernetesRuntime> {
  const worlds = await openPodWorlds({ ...options, runtime: 'kubernetes' });
  return new KubernetesRuntime(worlds, options.podSettings);
}

export { KUBERNETES_CAPABILITIES };
