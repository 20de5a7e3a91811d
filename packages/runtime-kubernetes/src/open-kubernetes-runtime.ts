/** Opens the runtime whose sandboxes are pods. */
import { openPodWorld, type PodWorldOptions } from '@torpor/pods';
import { KUBERNETES_CAPABILITIES, KubernetesRuntime } from './kubernetes-runtime.ts';

export async function kubernetesRuntime(
  options: Omit<PodWorldOptions, 'runtime'>,
): Promise<KubernetesRuntime> {
  return new KubernetesRuntime(await openPodWorld({ ...options, runtime: 'kubernetes' }));
}

export { KUBERNETES_CAPABILITIES };
