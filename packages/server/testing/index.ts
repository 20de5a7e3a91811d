export { dockerArchive, ociArchive, testImage } from '@torpor/images/testing';
export * from './agent-runtime.ts';
export * from './event-frames.ts';
export * from './test-server.ts';
