export { heldUsage } from './held-files.ts';
export type { LayerId } from './layer-id.ts';
export { chargeOf, LayerWatch, roomOf } from './layer-watch.ts';
export type { Layers, Usage } from './layers.ts';
export { openOverlayLayers } from './overlay-layers.ts';
export { LAYERS_TO_MERGE_FROM, optionsFor, stackOf, topmostAt } from './overlay-mount.ts';
