/** A gateway for a test of the server: on its engine and keys, under a domain that nobody asks DNS for. */
import { DEFAULT_GATEWAY_SETTINGS, type Gateway } from '@torpor/gateway';
import type { AppParts } from '../src/parts.ts';
import { openGateway } from '../src/preview/open-gateway.ts';

export function testGateway(parts: AppParts): Gateway {
  const gateway = openGateway({
    ...parts,
    engine: () => parts.engine,
    secret: new Uint8Array(32),
    settings: DEFAULT_GATEWAY_SETTINGS,
  });
  gateway.setPublicAddress({ domain: 'sbx.localhost', scheme: 'http' });
  return gateway;
}
