export { buildTemplate } from './build.ts';
export { BuildFailure } from './build-failure.ts';
