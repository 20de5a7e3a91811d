export { PROCESS_LIMITS } from './limits.ts';
export { processRuntime } from './open-process-runtime.ts';
