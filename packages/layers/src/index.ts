export { checksummedJson, checksummedRecord, unwrapChecksummed } from './checksummed-record.ts';
export { deletedFilesUsage } from './deleted-files.ts';
export { canReflink, syncFileSystem } from './file-programs.ts';
export { LayerClaims } from './layer-claims.ts';
export { isLayerId, type LayerId, layerReferenceSchema } from './layer-id.ts';
export type { LayerClaim, LayerStore, LayersInUse } from './layer-store.ts';
export { billableBytes, freeSpaceOf, LayerWatch } from './layer-watch.ts';
export type { Layers, SealRecord, Usage } from './layers.ts';
export { openOverlayLayers } from './overlay-layers.ts';
export { MERGE_THRESHOLD, optionsFor, stackOf, topmostAt } from './overlay-mount.ts';
export { packEntries, unpackEntries } from './pack.ts';
export {
  digestOfTools,
  PROGRAM_KINDS,
  type ProgramId,
  type ProgramKind,
  type ProgramStore,
} from './program-store.ts';
export { type FoundQuotas, findProjectQuotas, type ProjectQuotas, randomProject } from './project-quotas.ts';
