export { agentBundle } from './agent-bundle.ts';
export { engineOn } from './engine-on.ts';
