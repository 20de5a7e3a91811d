export {
  beginRunscUpgrade,
  type RunningUpgrade,
  type UpgradeOptions,
} from './gvisor/binaries/upgrade.ts';
export { clearMachine, runningContainers } from './gvisor/clear-machine.ts';
export { type HostCheck, hostChecks } from './gvisor/host-checks.ts';
export { mountNamespaceOf, mountsOnHost } from './gvisor/mount-namespace.ts';
export {
  type GvisorRuntimeOptions,
  gvisorRuntime,
  type OpenedRuntime,
} from './gvisor/open-gvisor-runtime.ts';
export { type Probe, probeGvisor } from './gvisor/probe.ts';
export { PROCESS_LIMITS } from './process/limits.ts';
export { type ProcessRuntimeOptions, processRuntime } from './process/open-process-runtime.ts';
export { declaredPort, startServices } from './services.ts';
export {
  DEFAULT_RUNTIME_SETTINGS,
  RUNTIME_SETTING_ORDER,
  RUNTIME_SETTINGS,
  type RuntimeSettings,
} from './settings.ts';
