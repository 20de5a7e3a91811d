export { BaseMaker } from './base/base-maker.ts';
export { findMachineBase, obstacleToBase } from './base/build-base.mjs';
export { checkRunsc } from './binaries/doctor.ts';
export { beginRunscUpgrade, type RunningUpgrade, type UpgradeOptions } from './binaries/upgrade.ts';
export { type HostCheck, hostChecks } from './host-checks/host-checks.ts';
export { probeGvisor } from './host-checks/probe.ts';
export { cleanUpHost, gvisorGuardTargets, runningContainers } from './host-cleanup.ts';
export { mountNamespaceOf, mountsOnHost } from './mounts/mount-namespace.ts';
export { gvisorRuntime } from './open-gvisor-runtime.ts';
