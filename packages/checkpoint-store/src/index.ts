export { adoptGvisorLayers } from './adopt-gvisor-layers.ts';
export { type LayeredCheckpointStore, openDirectoryStore } from './directory.ts';
export { holdStore } from './store-hold.ts';
