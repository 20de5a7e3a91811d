/**
 * Sends requests to previews the way clients do: through the server's own port and its gateway. DNS is not used,
 * because the resolver need not know the names of previews.
 */
import { request as httpRequest, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { PreviewResponse } from '@torpor/builds';
import { TorporError } from '@torpor/protocol';

export interface PreviewRequestOptions {
  readonly method: 'GET' | 'HEAD';
  readonly path: string;
  readonly timeoutMs: number;
}

export class PreviewClient {
  #address: URL | undefined;

  /** Sets the address at which the server listens. It is known only after the server listens. */
  setAddress(address: URL): void {
    this.#address = address;
  }

  request(
    host: string,
    { method, path, timeoutMs }: PreviewRequestOptions,
    signal: AbortSignal,
  ): Promise<PreviewResponse> {
    const address = this.#address;
    if (address === undefined) throw new TorporError('unreachable', 'The server does not listen yet.');
    const secure = address.protocol === 'https:';
    const options: RequestOptions = {
      host: address.hostname.replace(/^\[|\]$/g, ''),
      port: address.port,
      method,
      path,
      headers: { host, accept: '*/*', 'user-agent': 'torpor-builds' },
      agent: false,
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
      // The server's own certificate is made for names, not for this address.
      ...(secure ? { servername: host.replace(/:\d+$/, ''), rejectUnauthorized: false } : {}),
    };
    return new Promise((resolve, reject) => {
      const outgoing = (secure ? httpsRequest : httpRequest)(options, (response) => {
        response.resume();
        const headers = Object.entries(response.headers).map(
          ([name, value]) => [name, String(value)] as const,
        );
        resolve({ status: response.statusCode ?? 500, headers: Object.fromEntries(headers) });
      });
      outgoing.on('error', (cause) => {
        reject(new TorporError('unreachable', 'The application did not answer.', { cause }));
      });
      outgoing.end();
    });
  }
}
