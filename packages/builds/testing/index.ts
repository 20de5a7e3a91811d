export { textFile } from '../src/runners/generated-files.ts';
export * from './build-world.ts';
export * from './fake-provider.ts';
export * from './model-server.ts';
export * from './ready-build.ts';
