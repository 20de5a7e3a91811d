/** Requests to addresses that were checked, with redirects whose targets are checked in the same way. */
import { type IncomingMessage, request as plainRequest, type RequestOptions } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { isIP } from 'node:net';
import {
  type AddressCheck,
  checkedAddress,
  type Resolve,
  resolveWithSystem,
} from '@torpor/network/address-check';
import { TorporError } from '@torpor/protocol';

interface GetRequest {
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly authorization?: string | undefined;
  /** With a body it is a POST, which is not redirected. */
  readonly body?: string | undefined;
  readonly signal: AbortSignal;
}

/** The caller reads the body to its end, or destroys the response. */
export type HttpGet = (request: GetRequest) => Promise<IncomingMessage>;

const MAX_REDIRECTS = 5;
/** A registry that sends nothing for so long is taken for gone. */
const SILENCE_MS = 60_000;

/** Without TLS only on this machine, where nobody can listen. */
export function isPlain(hostname: string): boolean {
  return hostname === 'localhost' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(hostname);
}

export function httpGet(check: AddressCheck, resolve: Resolve = resolveWithSystem): HttpGet {
  return async (request) => {
    let { url } = request;
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects += 1) {
      requireSafe(url);
      const address = await checkedAddress(check, resolve, url.hostname);
      // A credential stays with the host that it was made for.
      const authorization = url.host === request.url.host ? request.authorization : undefined;
      const response = await exchange(url, address, { ...request, authorization });
      const { statusCode = 0, headers } = response;
      const { location } = headers;
      const isRedirect = statusCode >= 300 && statusCode < 400 && request.body === undefined;
      if (!isRedirect || location === undefined) return response;
      response.destroy();
      url = new URL(location, url);
    }
    throw new TorporError('unreachable', `${request.url.host} redirects too often.`);
  };
}

function requireSafe({ protocol, hostname }: URL): void {
  if (protocol === 'https:' || (protocol === 'http:' && isPlain(hostname))) return;
  throw new TorporError('forbidden', `Images are not fetched from ${hostname} without TLS.`);
}

function exchange(url: URL, address: string, request: GetRequest): Promise<IncomingMessage> {
  const { headers, authorization, body, signal } = request;
  const isTls = url.protocol === 'https:';
  const options: RequestOptions & { servername?: string } = {
    method: body === undefined ? 'GET' : 'POST',
    host: address,
    port: url.port === '' ? (isTls ? 443 : 80) : Number(url.port),
    path: `${url.pathname}${url.search}`,
    headers: { ...headers, host: url.host, ...(authorization === undefined ? {} : { authorization }) },
    // The certificate must be valid for the name, although the connection goes to an address.
    ...(isTls && isIP(url.hostname) === 0 ? { servername: url.hostname } : {}),
    // A kept connection would lead to the address of an earlier check.
    agent: false,
    timeout: SILENCE_MS,
    signal,
  };
  return new Promise((resolve, reject) => {
    const outgoing = (isTls ? tlsRequest : plainRequest)(options);
    outgoing.once('response', resolve);
    outgoing.once('timeout', () => outgoing.destroy(new Error('it was silent for too long')));
    // Errors after the response reach the reader of its body.
    outgoing.on('error', (cause) => reject(signal.aborted ? signal.reason : unreachable(url, cause)));
    outgoing.end(body);
  });
}

export function unreachable(url: URL, cause: unknown): TorporError {
  const { code, message } = cause as NodeJS.ErrnoException;
  return new TorporError('unreachable', `${url.host} could not be reached: ${code ?? message}.`, { cause });
}
