/** Trailer fields. They must not contain framing, routing or credentials, which were decided from the head. */
import { type HeadersByName, headersByName } from '../response/client-http.ts';
import { HOP_BY_HOP } from './hop-by-hop.ts';

const FORBIDDEN_TRAILERS: ReadonlySet<string> = new Set([
  'authorization',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'expect',
  'forwarded',
  'host',
  'set-cookie',
  'trailer',
  'x-access-token',
  'x-api-key',
]);

function isAllowedTrailer(name: string): boolean {
  const lower = name.toLowerCase();
  if (HOP_BY_HOP.has(lower) || FORBIDDEN_TRAILERS.has(lower)) return false;
  return !/^(?::|torpor-|e2b-|x-forwarded-)/.test(lower);
}

/** Names and values alternate. */
export function requestTrailers(raw: readonly string[]): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    if (isAllowedTrailer(name)) kept.push(name, raw[i + 1] as string);
  }
  return kept;
}

export function responseTrailers(raw: readonly string[]): HeadersByName {
  return headersByName(requestTrailers(raw));
}
