/** Which requests another node has passed on, and who their clients are. */
import type { Origin } from '../exchange/request-head.ts';
import { type ClientRequest, isHttp2 } from '../response/client-http.ts';
import type { PassedOn } from './hop-signature.ts';

const passedOn = new WeakMap<ClientRequest, PassedOn>();

/** Only for a request whose signature was checked. */
export function markPassedOn(request: ClientRequest, by: PassedOn): void {
  passedOn.set(request, by);
}

/** Undefined for a request that came from a client. */
export function passedOnBy(request: ClientRequest): PassedOn | undefined {
  return passedOn.get(request);
}

/**
 * The client's connection: of the request itself, or as the node that passed it on has seen it. Forwarding headers of the
 * request are not trusted.
 */
export function originOf(request: ClientRequest): Origin {
  const host = (isHttp2(request) ? request.authority : undefined) || request.headers.host || '';
  const by = passedOn.get(request);
  if (by !== undefined) return { host, ...by.client };
  const { socket } = request;
  return {
    host,
    scheme: 'encrypted' in socket && socket.encrypted === true ? 'https' : 'http',
    remoteAddress: socket.remoteAddress ?? '',
    localPort: socket.localPort ?? 0,
  };
}
