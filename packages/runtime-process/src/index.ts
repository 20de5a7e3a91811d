export { PROCESS_LIMITS } from './limits.ts';
export { processGuardTargets, processRuntime } from './open-process-runtime.ts';
export { PROCESS_CAPABILITIES } from './process-runtime.ts';
