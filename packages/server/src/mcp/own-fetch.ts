/**
 * A `fetch` that reaches this server itself, at the address where it listens. The certificate is not checked: it is made for
 * names and not for this address, and the connection does not leave the machine.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { type AddressInfo, isIPv6 } from 'node:net';
import { Readable } from 'node:stream';

export interface OwnFetchOptions {
  readonly address: AddressInfo;
  readonly secure: boolean;
  /** Added to every request. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A response with such a status has no body. */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

export function ownFetch({ address, secure, headers: added }: OwnFetchOptions): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    const { pathname, search } = new URL(request.url);
    const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = (secure ? httpsRequest : httpRequest)(
        {
          host: reachable(address.address),
          port: address.port,
          method: request.method,
          path: `${pathname}${search}`,
          headers: { ...Object.fromEntries(request.headers), ...added },
          agent: false,
          signal: request.signal,
          ...(secure ? { rejectUnauthorized: false } : {}),
        },
        resolve,
      );
      outgoing.on('error', reject).end(body);
    });
    const { statusCode = 500 } = response;
    const headers = Object.entries(response.headers).map(([name, value]): [string, string] => [
      name,
      String(value),
    ]);
    if (WITHOUT_BODY.has(statusCode)) response.resume();
    const content = WITHOUT_BODY.has(statusCode) ? null : (Readable.toWeb(response) as ReadableStream);
    return new Response(content, { status: statusCode, headers });
  };
}

/** A server that listens on all addresses is reached at the loopback address of the same family. */
function reachable(address: string): string {
  if (address !== '0.0.0.0' && address !== '::') return address;
  return isIPv6(address) ? '::1' : '127.0.0.1';
}
