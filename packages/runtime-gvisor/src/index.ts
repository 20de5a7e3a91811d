export { beginRunscUpgrade, type RunningUpgrade, type UpgradeOptions } from './binaries/upgrade.ts';
export { type HostCheck, hostChecks } from './host-checks/host-checks.ts';
export { probeGvisor } from './host-checks/probe.ts';
export { cleanUpHost, runningContainers } from './host-cleanup.ts';
export { mountNamespaceOf, mountsOnHost } from './mounts/mount-namespace.ts';
export { gvisorRuntime } from './open-gvisor-runtime.ts';
