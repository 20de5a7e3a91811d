export { LINK_PARAMETER } from './access/access-check.ts';
export type { UsedLinks } from './access/tokens.ts';
export { engineSandboxDirectory } from './engine-sandbox-directory.ts';
export { Gateway, type GatewayObserver, type GatewayParts, type PublicAddress } from './gateway.ts';
export { type HopObserver, nodeIsAway } from './hop/hop.ts';
export { type HopRefusal, HopSigner } from './hop/hop-signature.ts';
export { passedOnBy } from './hop/passed-on.ts';
export type { Keys } from './preview-request.ts';
export {
  API_UPGRADE,
  createPublicServer,
  type PublicServer,
  type PublicServerOptions,
} from './public-server.ts';
export type { ClientResponse } from './response/client-http.ts';
export { hostNameOf } from './route/host-name.ts';
export { AGENT_PORT } from './route/route.ts';
export type { SandboxDirectory, SandboxInfo } from './sandbox-directory.ts';
export {
  DEFAULT_GATEWAY_SETTINGS,
  GATEWAY_SETTING_ORDER,
  GATEWAY_SETTINGS,
  type GatewaySettings,
} from './settings.ts';
export {
  type CertificateFiles,
  readCertificateFiles,
  watchCertificateFiles,
} from './tls/certificate-files.ts';
export { type LocalCertificate, localCertificate } from './tls/local-authority.ts';
