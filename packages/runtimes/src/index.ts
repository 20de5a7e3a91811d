export { PROCESS_LIMITS } from './process/limits.ts';
export { type ProcessRuntimeOptions, processRuntime } from './process/open-process-runtime.ts';
