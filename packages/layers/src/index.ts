export { heldUsage } from './held-files.ts';
export { LayerClaims } from './layer-claims.ts';
export { isLayerId, type LayerId } from './layer-id.ts';
export type { LayerClaim, LayerStore, LayersInUse } from './layer-store.ts';
export { chargeOf, LayerWatch, roomOf } from './layer-watch.ts';
export type { Layers, Usage } from './layers.ts';
export { openOverlayLayers } from './overlay-layers.ts';
export { LAYERS_TO_MERGE_FROM, optionsFor, stackOf, topmostAt } from './overlay-mount.ts';
export { openSealedText, sealedLine, sealedText, sha256Of } from './sealed-text.ts';
