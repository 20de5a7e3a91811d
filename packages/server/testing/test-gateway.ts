/** A gateway for tests of the server, with its engine and keys, under a domain that needs no DNS. */
import { DEFAULT_GATEWAY_SETTINGS, type Gateway } from '@torpor/gateway';
import { openGateway } from '../src/preview/open-gateway.ts';
import type { AppContext } from '../src/route-context.ts';

export function testGateway(ctx: AppContext): Gateway {
  const gateway = openGateway({
    ...ctx,
    engine: () => ctx.engine,
    secret: new Uint8Array(32),
    settings: DEFAULT_GATEWAY_SETTINGS,
  });
  gateway.setPublicAddress({ domain: 'sbx.localhost', scheme: 'http' });
  return gateway;
}
