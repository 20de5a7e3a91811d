export { manifestFor, newCheckpointId } from './small-checkpoint.ts';
export { makeVersion1 } from './version-1.ts';
