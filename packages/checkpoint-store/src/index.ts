export {
  checksummedRecord,
  PROGRAM_KINDS,
  type ProgramId,
  syncFileSystem,
  unwrapChecksummed,
} from '@torpor/layers';
export { adoptDataDirectory, hasEarlierLayout } from './adopt-data-directory.ts';
export {
  copyCheckpoint,
  copyProgram,
  copyTree,
  digestOf,
  notAsSaved,
  packLayer,
  type StoreAt,
  storeAt,
  unpackLayer,
} from './backup.ts';
export { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';
export { StoreReplicas } from './replicas.ts';
export { holdStore } from './store-hold.ts';
