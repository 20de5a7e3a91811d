export { FaultProxy } from './fault-proxy.ts';
export { environmentFor, type LabS3, labMissing, startLabS3 } from './lab.ts';
