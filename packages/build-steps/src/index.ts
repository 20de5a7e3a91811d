export { imageTemplateName, USUAL_PATH } from './image-template.ts';
export { makeDirectory } from './make-directory.ts';
export { type CopyOrder, commandFor, type Placement, placementOfFiles } from './placement.ts';
export { quoted, quotedAll } from './shell-words.ts';
export { digestOf, type Source } from './source.ts';
export { type ChainPosition, StepChain, type StepChainParts } from './step-chain.ts';
export {
  CACHE_SECONDS,
  type RunningSandbox,
  type StepCommand,
  type StepOrigin,
  type StepSandboxes,
} from './step-sandboxes.ts';
export { type TarItem, tarStream } from './tar-stream.ts';
