export { type AgentOrder, agentClient, notAlive, setUpAgent } from './agent-setup.ts';
export { Cluster } from './cluster.ts';
export { ClusterFault, isAbsent, isConflict, isUnserved } from './cluster-fault.ts';
export { writeAgentImage } from './image/agent-image.ts';
export { instancesOf, onInstanceEnded } from './instances.ts';
export { HOME_LABEL, instanceOf, labelsOf, NO_INSTANCE, objectName, selectorOf } from './labels.ts';
export { Namespaces } from './namespaces.ts';
export { nextLookMs } from './next-look.ts';
export { ObjectWatch } from './object-watch.ts';
export { openPodWorlds, type PodWorld, type PodWorldOptions, type PodWorlds } from './open-pod-world.ts';
export { type PodConnection, PodConnections } from './pod-connections.ts';
export type { ReachedPod } from './pod-reach.ts';
export { type PodSettings, readPodSettings } from './pod-settings.ts';
export { CREDENTIAL_KEY, podSpec, poolCredential } from './pod-spec.ts';
export { type PodState, podState } from './pod-state.ts';
export { Pods, reachedPod } from './pods.ts';
export {
  type Condition,
  condition,
  type List,
  type Metadata,
  type OwnerReference,
  type Pod,
} from './resources.ts';
export { type StartSecret, StartSecrets } from './start-secret.ts';
export { capturedImage, imageOf, templateImage } from './template-needs.ts';
