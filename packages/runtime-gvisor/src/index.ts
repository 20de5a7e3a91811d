export { beginRunscUpgrade, type RunningUpgrade, type UpgradeOptions } from './binaries/upgrade.ts';
export { clearMachine, runningContainers } from './clear-machine.ts';
export { type HostCheck, hostChecks } from './host-checks.ts';
export { mountNamespaceOf, mountsOnHost } from './mount-namespace.ts';
export { gvisorRuntime } from './open-gvisor-runtime.ts';
export { probeGvisor } from './probe.ts';
