export type { Bytes } from './attached-instance.ts';
export { EGRESS_PORT, RESOLVER_ADDRESS, RESOLVER_PORT } from './firewall.ts';
export { socketsInNamespace } from './namespace-sockets.ts';
export { namespaceNames, removeNamespaces } from './namespaces.ts';
export { openSandboxNetwork, type SandboxNetworkOptions } from './open-network.ts';
export { policyOf } from './policy.ts';
export type { Refusal } from './refusals.ts';
export type { Attachment, SandboxNetwork } from './sandbox-network.ts';
export { runInNamespace, runSystemProgram } from './system-program.ts';
