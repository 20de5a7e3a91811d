/**
 * The names that the server is called by. A page of a stranger can make its own name lead to this machine (DNS
 * rebinding) and then reads, as its own, whatever is answered without a key. Its browser says that name in `Host`.
 *
 * With a valid key in a header any name is accepted: a browser adds no key by itself. So a reverse proxy may keep
 * the name that its clients use.
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
  /** What the server listens on, a name or an address. */
  readonly host: string;
  /** Under which previews are found; `api.` below it is the API. It may have a port. */
  readonly domain: string;
  /** The name of the machine. */
  readonly machine: string;
  /** What the operator adds. */
  readonly allowed: readonly string[];
}

export class HostNames {
  readonly #names: ReadonlySet<string>;
  /** `.example.com` for everything below it. */
  readonly #suffixes: readonly string[];

  constructor({ host, domain, machine, allowed }: HostNamesOptions) {
    const plainDomain = domain.replace(/:\d+$/, '');
    const names = ['localhost', host, machine, plainDomain, `api.${plainDomain}`, ...allowed];
    const lower = names.map((name) => name.toLowerCase());
    this.#names = new Set(lower.filter((name) => !name.startsWith('*.')));
    // Browsers look no name below `localhost` up: it is always this machine.
    this.#suffixes = [
      '.localhost',
      ...lower.filter((name) => name.startsWith('*.')).map((name) => name.slice(1)),
    ];
  }

  accepts(headers: IncomingHttpHeaders): boolean {
    // HTTP/1.0 may have neither; a browser always sends one.
    const said = [headers[':authority'], headers.host].filter((authority) => authority !== undefined);
    return said.every((authority) => typeof authority === 'string' && this.#isOurs(authority));
  }

  #isOurs(authority: string): boolean {
    const name = hostNameOf(authority);
    if (name === undefined) return false;
    // Nobody can make an address lead to another machine, so a page that was loaded from one was loaded from us.
    if (isIP(name.replace(/^\[|\]$/g, '')) !== 0) return true;
    return this.#names.has(name) || this.#suffixes.some((suffix) => name.endsWith(suffix));
  }
}

export function unknownHostName(): TorporError {
  return new TorporError('forbidden', 'Without a key the server answers only under its own names.', {
    hint: 'Send a key, or start the server with --allowed-hosts and the name that you use.',
  });
}
