/** The gateway's own responses: Torpor's JSON for programs, E2B's JSON for E2B's clients, a page for people. */
import {
  ANSWERED_BY_GATEWAY,
  ANSWERED_BY_HEADER,
  bareSandboxId,
  factsOf,
  type RequestId,
  type TorporError,
} from '@torpor/protocol';
import type { PreviewRoute } from '../route/route.ts';
import { type ClientRequest, type ClientResponse, isHttp2, isNavigation } from './client-http.ts';
import { e2bErrorResponse } from './e2b-error.ts';
import { errorPage } from './error-page.ts';
import { PAGE_POLICY, type Page, renderPage } from './page.ts';

export interface GatewayResponseParts {
  readonly nextRequestId: () => RequestId;
  /** The URL of a port's preview. */
  readonly previewUrl: (route: Pick<PreviewRoute, 'sandboxId' | 'port'>) => string;
}

export class GatewayResponses {
  readonly #parts: GatewayResponseParts;

  constructor(parts: GatewayResponseParts) {
    this.#parts = parts;
  }

  /** `status` replaces the status that belongs to the error's code. */
  refuse(
    request: ClientRequest,
    response: ClientResponse,
    route: PreviewRoute | undefined,
    error: TorporError,
    status = factsOf(error.code).http,
  ): RequestId {
    const requestId = this.#parts.nextRequestId();
    const { retryAfterMs, details, ...body } = error.toBody();
    const headers: Record<string, string> = {
      ...(retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }),
    };
    if ((route === undefined || route.by === 'host') && isNavigation(request)) {
      const addressOf = (port: number) =>
        route === undefined ? '/' : this.#parts.previewUrl({ ...route, port });
      this.#page(request, response, status, headers, errorPage(error, requestId, addressOf));
      return requestId;
    }
    if (route?.dialect === 'e2b') {
      const theirs = e2bErrorResponse(error, route.sandboxId, route.port);
      this.json(request, response, theirs.status, { ...headers, 'x-request-id': requestId }, theirs.body);
      return requestId;
    }
    const shown =
      error.code === 'internal'
        ? { ...body, message: 'Something went wrong inside Torpor.' }
        : { ...body, ...(details === undefined ? {} : { details }) };
    this.json(
      request,
      response,
      status,
      { ...headers, 'x-request-id': requestId },
      {
        error: { ...shown, ...(retryAfterMs === undefined ? {} : { retryAfterMs }), requestId },
      },
    );
    return requestId;
  }

  /** The waiting page, which a browser shows while the sandbox wakes. */
  waiting(
    request: ClientRequest,
    response: ClientResponse,
    page: Pick<Page, 'title' | 'message'> & { readonly statusPath: string },
  ): void {
    const { title, message, statusPath } = page;
    const requestId = this.#parts.nextRequestId();
    const full = { title, message, waitsFor: { statusPath }, requestId };
    this.#page(request, response, 503, { 'retry-after': '1' }, full);
  }

  json(
    request: ClientRequest,
    response: ClientResponse,
    status: number,
    headers: Readonly<Record<string, string>>,
    body: unknown,
  ): void {
    const type = { 'content-type': 'application/json; charset=utf-8' };
    send(request, response, status, { ...type, ...headers }, JSON.stringify(body));
  }

  /** Redirects the browser to another address, and sets a cookie. */
  redirect(request: ClientRequest, response: ClientResponse, location: string, cookie: string): void {
    const headers = { location, 'set-cookie': cookie, 'referrer-policy': 'no-referrer' };
    send(request, response, 303, { ...headers, 'content-type': 'text/plain; charset=utf-8' }, '');
  }

  #page(
    request: ClientRequest,
    response: ClientResponse,
    status: number,
    headers: Readonly<Record<string, string>>,
    page: Page,
  ): void {
    const own = {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': PAGE_POLICY,
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'x-request-id': page.requestId,
    };
    send(request, response, status, { ...own, ...headers }, renderPage(page));
  }
}

/** Every response of the gateway's own is sent here. */
function send(
  request: ClientRequest,
  response: ClientResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  body: string,
): void {
  if (response.headersSent || response.destroyed) return;
  const all: Record<string, string> = {
    [ANSWERED_BY_HEADER]: ANSWERED_BY_GATEWAY,
    'cache-control': 'no-store',
    ...headers,
    'content-length': String(Buffer.byteLength(body)),
  };
  // The unread rest of a request body must not be taken for the next request.
  if (!isHttp2(request) && !request.complete) all['connection'] = 'close';
  response.writeHead(status, all);
  if (request.method === 'HEAD') response.end();
  else response.end(body);
}

export function previewHost(
  { sandboxId, port }: Pick<PreviewRoute, 'sandboxId' | 'port'>,
  domain: string,
): string {
  return `${port}-${bareSandboxId(sandboxId)}.${domain}`;
}
