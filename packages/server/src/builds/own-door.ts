/**
 * Requests to previews by the way that visitors take: through the server's own port and the gateway behind it, and
 * never through a resolver, which need not know the names of previews.
 */
import { request as httpRequest, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { PreviewResponse } from '@torpor/builds';
import { TorporError } from '@torpor/protocol';

export interface VisitOrder {
  readonly method: 'GET' | 'HEAD';
  readonly path: string;
  readonly timeoutMs: number;
}

export class OwnDoor {
  private address: URL | undefined;

  /** Where the server listens; known only then. */
  settle(address: URL): void {
    this.address = address;
  }

  visit(
    host: string,
    { method, path, timeoutMs }: VisitOrder,
    signal: AbortSignal,
  ): Promise<PreviewResponse> {
    const { address } = this;
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
      // It is our own certificate, made for names and not for this address.
      ...(secure ? { servername: host.replace(/:\d+$/, ''), rejectUnauthorized: false } : {}),
    };
    return new Promise((resolve, reject) => {
      const asked = (secure ? httpsRequest : httpRequest)(options, (response) => {
        response.resume();
        const headers = Object.entries(response.headers).map(
          ([name, value]) => [name, String(value)] as const,
        );
        resolve({ status: response.statusCode ?? 500, headers: Object.fromEntries(headers) });
      });
      asked.on('error', (cause) => {
        reject(new TorporError('unreachable', 'The application did not answer.', { cause }));
      });
      asked.end();
    });
  }
}
