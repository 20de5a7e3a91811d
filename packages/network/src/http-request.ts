/** Parses the host that the first request of an HTTP/1 client names. */
import { isIP } from 'node:net';
import type { ParsedName } from './first-bytes.ts';
import { normalName } from './host-name.ts';

const HEADER = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)$/;

/** Text without a complete first line may still become a request. Empty lines before a request are skipped, as servers do. */
export function parseHttpRequest(bytes: Buffer): ParsedName {
  const text = bytes.toString('latin1').replace(/^[\r\n]+/, '');
  const end = text.indexOf('\n');
  if (end === -1) return isText(text) ? { is: 'more' } : { is: 'other' };
  const target = targetOf(text.slice(0, end));
  if (target === undefined) return { is: 'other' };
  const headEnd = /\n\r?\n/.exec(text);
  if (headEnd === null) return { is: 'more' };
  return parseHead(target, text.slice(end + 1, headEnd.index + 1));
}

/** Any line with a method and a version, because servers accept odd requests too. */
function targetOf(line: string): string | undefined {
  const words = line.trim().split(/[ \t]+/);
  return words.length > 1 && /^http\/\d/i.test(words.at(-1) ?? '') ? words.slice(1, -1).join(' ') : undefined;
}

/** Continued lines, odd names and control characters are refused, because two parsers may read them differently. */
function parseHead(target: string, headers: string): ParsedName {
  const hosts: string[] = [];
  for (const line of headers.split('\n')) {
    const plain = line.replace(/\r$/, '');
    if (plain === '') continue;
    const [, name, value] = HEADER.exec(plain) ?? [];
    if (name === undefined || value === undefined || /[\0\r]/.test(value)) return { is: 'unclear' };
    if (name.toLowerCase() === 'host') hosts.push(value.trim());
  }
  if (hosts.length === 0) return { is: 'nameless' };
  const [host = ''] = hosts;
  if (hosts.length > 1) return { is: 'unclear' };
  const named = authorityOf(target);
  if (named !== undefined && hostOf(named) !== hostOf(host)) return { is: 'unclear' };
  return parsedNameOf(host);
}

/** The host in the request target. Proxies get a whole URL or `host:port`, a server gets a path or `*`. */
function authorityOf(target: string): string | undefined {
  if (target.startsWith('/') || target === '*') return undefined;
  const [, authority] = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(target) ?? [];
  return authority ?? target;
}

function hostOf(authority: string): string {
  return authority.replace(/:\d*$/, '').toLowerCase();
}

function parsedNameOf(authority: string): ParsedName {
  const host = hostOf(authority);
  const name = normalName(host);
  if (name !== undefined) return { is: 'name', name };
  return isIP(host.replace(/^\[(.*)\]$/, '$1')) === 0 ? { is: 'unclear' } : { is: 'nameless' };
}

function isText(text: string): boolean {
  return /^[\t\r\x20-\x7e]*$/.test(text);
}
