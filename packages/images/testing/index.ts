export { REGISTRY_USER, startRegistry, type TestRegistry, whyNoRegistry } from './registry.ts';
export {
  digestOf,
  dockerArchive,
  INDEX_TYPE,
  ociArchive,
  type TestImage,
  testImage,
  testIndex,
} from './test-image.ts';
