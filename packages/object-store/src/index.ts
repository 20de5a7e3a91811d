export { type DataKeys, dataKeyId, makeDataKeys, readDataKeys } from './data-keys.ts';
export { EncryptedObjects } from './encrypted-objects.ts';
export type { ObjectStore, StoreLimits } from './object-store.ts';
export { openObjectStore, parseStoreAddress } from './open-object-store.ts';
export { probeObjectStore } from './probe.ts';
export { faultOf, type StoreFault } from './store-failure.ts';
export { Throttle } from './throttle.ts';
