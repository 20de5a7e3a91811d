/**
 * The host names that the server accepts. A malicious page can point its own name at this machine (DNS rebinding) and
 * then read every answer that needs no key. The browser sends that name in `Host`.
 *
 * With a valid key in a header any name is accepted, because a browser adds no key by itself. So a reverse proxy may
 * keep the name that its clients use.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { hostNameOf } from '@torpor/gateway';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

const NAME = /^(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/i;
const nameSchema = z.string().max(255).regex(NAME, 'must be names of hosts, without ports');

/** A list, or text with commas. `*.example.com` stands for every name below it. */
export const allowedHostsSchema = z.preprocess(
  (given) => (typeof given === 'string' ? given.split(',').map((name) => name.trim()) : given),
  z.array(nameSchema).max(100),
);

export interface HostNamesOptions {
  /** The name or address that the server listens on. */
  readonly host: string;
  /** The domain of previews; `api.` below it is the API. It may have a port. */
  readonly domain: string;
  /** The name of the machine. */
  readonly machine: string;
  /** Names that the operator adds. */
  readonly allowed: readonly string[];
}

export class HostNames {
  readonly #names: ReadonlySet<string>;
  /** `.example.com` accepts every name below it. */
  readonly #suffixes: readonly string[];

  constructor({ host, domain, machine, allowed }: HostNamesOptions) {
    const plainDomain = domain.replace(/:\d+$/, '');
    const names = ['localhost', host, machine, plainDomain, `api.${plainDomain}`, ...allowed];
    const lower = names.map((name) => name.toLowerCase());
    this.#names = new Set(lower.filter((name) => !name.startsWith('*.')));
    // Browsers resolve every name below `localhost` to this machine without DNS.
    this.#suffixes = [
      '.localhost',
      ...lower.filter((name) => name.startsWith('*.')).map((name) => name.slice(1)),
    ];
  }

  accepts(headers: IncomingHttpHeaders): boolean {
    // HTTP/1.0 requests may have neither header; a browser always sends one.
    const authorities = [headers[':authority'], headers.host].filter((authority) => authority !== undefined);
    return authorities.every((authority) => typeof authority === 'string' && this.#isOurs(authority));
  }

  #isOurs(authority: string): boolean {
    const name = hostNameOf(authority);
    if (name === undefined) return false;
    // DNS rebinding needs a name. A page that was loaded from an address was loaded from this server.
    if (isIP(name.replace(/^\[|\]$/g, '')) !== 0) return true;
    return this.#names.has(name) || this.#suffixes.some((suffix) => name.endsWith(suffix));
  }
}

export function unknownHostName(): TorporError {
  return new TorporError('forbidden', 'Without a key the server answers only under its own host names.', {
    hint: 'Send a key, or add this name with --allowed-hosts when you start the server.',
  });
}
