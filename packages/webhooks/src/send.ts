/** Sends one HTTP request to an address that was checked. */
import { type IncomingMessage, request as plainRequest, type RequestOptions } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { isIP } from 'node:net';
import { checkedAddress, type Resolve, resolveWithSystem } from '@torpor/network/address-check';
import { TorporError } from '@torpor/protocol';
import type { AddressCheck } from './address-check.ts';

export interface OutgoingRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

/** Resolves with the status of the response. Throws when there is none. */
export type SendRequest = (request: OutgoingRequest) => Promise<number>;

/**
 * The name is resolved here and the request goes to that address, so that a second answer of the name server cannot lead it
 * elsewhere after the check. Redirects are not followed: their target was not checked.
 */
export function sendRequest(check: AddressCheck, resolve: Resolve = resolveWithSystem): SendRequest {
  return async ({ url, headers, body, signal }) => {
    const address = await checkedAddress(check, resolve, url.hostname);
    const response = await exchange(url, address, headers, body, signal);
    await discardBody(response);
    return response.statusCode ?? 0;
  };
}

/** A longer body is cut off: only the status counts. */
const MAX_BODY_BYTES = 64 * 1024;

async function discardBody(response: IncomingMessage): Promise<void> {
  let bytes = 0;
  try {
    for await (const chunk of response) {
      bytes += (chunk as Buffer).length;
      // Leaving the loop closes the connection.
      if (bytes > MAX_BODY_BYTES) return;
    }
  } catch {
    // The receiver has sent its status; the rest of the response does not change it.
  }
}

function exchange(
  url: URL,
  address: string,
  headers: OutgoingRequest['headers'],
  body: string,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const isTls = url.protocol === 'https:';
  const options: RequestOptions & { servername?: string } = {
    method: 'POST',
    host: address,
    port: url.port === '' ? (isTls ? 443 : 80) : Number(url.port),
    path: `${url.pathname}${url.search}`,
    headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body) },
    // The certificate must be valid for the name, although the connection goes to an address.
    ...(isTls && isIP(url.hostname) === 0 ? { servername: url.hostname } : {}),
    // A kept connection would lead to the address of an earlier check.
    agent: false,
    signal,
  };
  return new Promise((resolve, reject) => {
    const outgoing = (isTls ? tlsRequest : plainRequest)(options);
    outgoing.once('response', resolve);
    // Errors after the response reach the reader of its body.
    outgoing.on('error', (cause) => {
      const why = signal.aborted ? 'it did not answer in time' : codeOf(cause);
      reject(new TorporError('unreachable', `The receiver could not be reached: ${why}.`, { cause }));
    });
    outgoing.end(body);
  });
}

function codeOf(thrown: unknown): string {
  const { code, message } = thrown as { readonly code?: unknown; readonly message?: unknown };
  return typeof code === 'string' ? code : String(message ?? thrown);
}
