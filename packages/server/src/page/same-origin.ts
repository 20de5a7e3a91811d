/** Whether a request comes from a page of this server, as the browser says in headers that no page can change. */
import type { IncomingHttpHeaders } from 'node:http';

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

export function isFromOwnPage(method: string, headers: IncomingHttpHeaders): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin';
  // Browsers send no Sec-Fetch-Site to an address without TLS that is not this machine.
  const { origin } = headers;
  if (origin === undefined) return READS.has(method) && headers['upgrade'] === undefined;
  return URL.canParse(origin) && new URL(origin).host === (headers[':authority'] ?? headers.host);
}
