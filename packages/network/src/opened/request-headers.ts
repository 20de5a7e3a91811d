/** The headers of a request and of its response, as the egress passes them on. Pure functions without I/O. */
import type { IncomingMessage } from 'node:http';
import type { UsableSecret } from '@torpor/engine';

/** They belong to one connection. A header that `Connection` names belongs to it too. */
const HOP_BY_HOP: readonly string[] = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** With these, some servers read another method or path than the request has, and the rules are about those. */
const OVERRIDES: readonly string[] = [
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-url',
  'x-rewrite-url',
];

/** Name and value, in the order of the message. */
export type Header = readonly [name: string, value: string];

export function endToEndHeaders({ rawHeaders }: Pick<IncomingMessage, 'rawHeaders'>): Header[] {
  const all: Header[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2)
    all.push([rawHeaders[index] ?? '', rawHeaders[index + 1] ?? '']);
  const named = all
    .filter(([name]) => name.toLowerCase() === 'connection')
    .flatMap(([, value]) => value.split(','))
    .map((name) => name.trim().toLowerCase());
  return all.filter(([name]) => ![...HOP_BY_HOP, ...named].includes(name.toLowerCase()));
}

/** `Connection: authorization` must not remove a header that the egress sets, so secrets are put in last. */
export function upstreamHeaders(
  request: Pick<IncomingMessage, 'rawHeaders'>,
  secrets: ReadonlyMap<string, UsableSecret>,
): Header[] {
  const dropped = ['expect', ...(secrets.size === 0 ? [] : OVERRIDES), ...secrets.keys()];
  const own = endToEndHeaders(request).filter(([name]) => !dropped.includes(name.toLowerCase()));
  const put = [...secrets.values()].map(({ header, content }): Header => [header, content]);
  return [...own, ...put];
}

/** By name, as `http.request` takes them. */
export function grouped(headers: readonly Header[]): Record<string, string | string[]> {
  const byName = new Map<string, { readonly name: string; readonly values: string[] }>();
  for (const [name, value] of headers) {
    const entry = byName.get(name.toLowerCase()) ?? { name, values: [] };
    entry.values.push(value);
    byName.set(name.toLowerCase(), entry);
  }
  return Object.fromEntries(
    [...byName.values()].map(({ name, values }) => [name, values.length === 1 ? (values[0] ?? '') : values]),
  );
}
