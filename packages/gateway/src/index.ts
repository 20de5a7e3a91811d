export { LINK_PARAMETER } from './access/admission.ts';
export type { ClientResponse } from './answer/client-side.ts';
export { engineSandboxes } from './engine-sandboxes.ts';
export { type FrontOptions, type FrontServer, frontServer } from './front.ts';
export { Gateway, type GatewayObserver, type GatewayParts, type Place } from './gateway.ts';
export { hostNameOf } from './route/host-name.ts';
export type { Sandboxes, SandboxFacts } from './sandboxes.ts';
export {
  DEFAULT_GATEWAY_SETTINGS,
  GATEWAY_SETTING_ORDER,
  GATEWAY_SETTINGS,
  type GatewaySettings,
} from './settings.ts';
export { type LocalCertificate, localCertificate } from './tls/local-authority.ts';
export type { Keys } from './visit.ts';
