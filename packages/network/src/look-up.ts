/** Asks the host's name servers. The host's own files, such as /etc/hosts, are never used. */
import { Resolver } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import type { Clock } from '@torpor/engine';
import { errnoOf, isMissing } from '@torpor/host';

export interface AddressRecord {
  readonly address: string;
  readonly ttl: number;
}

/** The supported types of records besides addresses. */
export const RECORD_TYPES = ['CAA', 'CNAME', 'MX', 'NS', 'SOA', 'SRV', 'TXT'] as const;
export type RecordType = (typeof RECORD_TYPES)[number];

export type Found<T> =
  | { readonly is: 'found'; readonly records: readonly T[] }
  /** The name does not exist. */
  | { readonly is: 'unknown' }
  /** The name servers gave no usable answer. */
  | { readonly is: 'failed' };

export interface LookUp {
  addresses(name: string): Promise<Found<AddressRecord>>;
  /** The records are in the form of `node:dns`. */
  records(name: string, type: RecordType): Promise<Found<unknown>>;
}

/** The stub resolver of systemd answers from the host's files too. Its upstream servers are in another file. */
const SYSTEMD_STUB = '127.0.0.53';

const HOST_FILES = { configuration: '/etc/resolv.conf', behindStub: '/run/systemd/resolve/resolv.conf' };
/** How long the list of name servers is cached. */
const CACHE_MS = 5_000;
const QUERY_OPTIONS = { timeout: 3_000, tries: 2 };

export class HostLookUp implements LookUp {
  readonly #clock: Clock;
  readonly #files: typeof HOST_FILES;
  #resolver:
    | { readonly resolver: Resolver; readonly changedAt: number; readonly checkedAt: number }
    | undefined;

  constructor(clock: Clock, files = HOST_FILES) {
    this.#clock = clock;
    this.#files = files;
  }

  addresses(name: string): Promise<Found<AddressRecord>> {
    return this.#query((resolver) => resolver.resolve4(name, { ttl: true }));
  }

  records(name: string, type: RecordType): Promise<Found<unknown>> {
    return this.#query(async (resolver) => {
      const records: unknown = await resolver.resolve(name, type);
      return Array.isArray(records) ? records : [records];
    });
  }

  async #query<T>(send: (resolver: Resolver) => Promise<readonly T[]>): Promise<Found<T>> {
    try {
      return { is: 'found', records: await send(await this.#current()) };
    } catch (thrown) {
      const code = errnoOf(thrown);
      if (code === 'ENODATA') return { is: 'found', records: [] };
      return { is: code === 'ENOTFOUND' ? 'unknown' : 'failed' };
    }
  }

  /** The host's name servers may change, for example when a laptop changes its network. */
  async #current(): Promise<Resolver> {
    const checkedAt = this.#clock.monotonic();
    const known = this.#resolver;
    if (known !== undefined && checkedAt - known.checkedAt < CACHE_MS) return known.resolver;
    const changedAt = (await stat(this.#files.configuration)).mtimeMs;
    const resolver = known?.changedAt === changedAt ? known.resolver : new Resolver(QUERY_OPTIONS);
    if (resolver !== known?.resolver) resolver.setServers(await nameServers(this.#files));
    this.#resolver = { resolver, changedAt, checkedAt };
    return resolver;
  }
}

async function nameServers({
  configuration,
  behindStub: behindForwarder,
}: typeof HOST_FILES): Promise<string[]> {
  const servers = parseNameServers(await readFile(configuration, 'latin1'));
  if (!servers.includes(SYSTEMD_STUB)) return servers;
  const behind = await readFile(behindForwarder, 'latin1').catch((thrown: unknown) => {
    if (isMissing(thrown)) return '';
    throw thrown;
  });
  const found = parseNameServers(behind);
  return found.length > 0 ? found : servers;
}

export function parseNameServers(configuration: string): string[] {
  return [...configuration.matchAll(/^\s*nameserver\s+([0-9a-fA-F.:]+)/gm)].map(([, server = '']) => server);
}
