export { checksummedRecord, syncFileSystem, unwrapChecksummed } from '@torpor/layers';
export { adoptGvisorLayers, isOfVersion1 } from './adopt-gvisor-layers.ts';
export {
  copyCheckpoint,
  copyTree,
  digestOf,
  notAsSaved,
  packLayer,
  storeAt,
  unpackLayer,
} from './backup.ts';
export { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';
export { holdStore } from './store-hold.ts';
