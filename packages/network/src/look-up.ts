/** What the host's name servers say of a name. Never what its own files do: /etc/hosts is the host's. */
import { Resolver } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import type { Clock } from '@torpor/engine';
import { isMissing } from '@torpor/host';

export interface AddressRecord {
  readonly address: string;
  readonly ttl: number;
}

/** Types of records that are passed on besides addresses. */
export const RECORD_TYPES = ['CAA', 'CNAME', 'MX', 'NS', 'SOA', 'SRV', 'TXT'] as const;
export type RecordType = (typeof RECORD_TYPES)[number];

export type Found<T> =
  | { readonly is: 'found'; readonly records: readonly T[] }
  /** There is no such name. */
  | { readonly is: 'unknown' }
  /** The name servers did not answer, or not with an answer. */
  | { readonly is: 'failed' };

export interface LookUp {
  addresses(name: string): Promise<Found<AddressRecord>>;
  /** In the form in which `node:dns` gives them. */
  records(name: string, type: RecordType): Promise<Found<unknown>>;
}

/** The local forwarder of systemd answers from the host's own files too; where it asks is written elsewhere. */
const FORWARDER = '127.0.0.53';

const HOST_FILES = { configuration: '/etc/resolv.conf', behindForwarder: '/run/systemd/resolve/resolv.conf' };
/** How long the list of name servers is believed. */
const BELIEVED_MS = 5_000;
const PATIENCE = { timeout: 3_000, tries: 2 };

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
    return this.#ask((resolver) => resolver.resolve4(name, { ttl: true }));
  }

  records(name: string, type: RecordType): Promise<Found<unknown>> {
    return this.#ask(async (resolver) => {
      const records: unknown = await resolver.resolve(name, type);
      return Array.isArray(records) ? records : [records];
    });
  }

  async #ask<T>(question: (resolver: Resolver) => Promise<readonly T[]>): Promise<Found<T>> {
    try {
      return { is: 'found', records: await question(await this.#current()) };
    } catch (thrown) {
      const { code } = thrown as NodeJS.ErrnoException;
      if (code === 'ENODATA') return { is: 'found', records: [] };
      return { is: code === 'ENOTFOUND' ? 'unknown' : 'failed' };
    }
  }

  /** The host's name servers change when it moves between networks. */
  async #current(): Promise<Resolver> {
    const checkedAt = this.#clock.monotonic();
    const known = this.#resolver;
    if (known !== undefined && checkedAt - known.checkedAt < BELIEVED_MS) return known.resolver;
    const changedAt = (await stat(this.#files.configuration)).mtimeMs;
    const resolver = known?.changedAt === changedAt ? known.resolver : new Resolver(PATIENCE);
    if (resolver !== known?.resolver) resolver.setServers(await nameServers(this.#files));
    this.#resolver = { resolver, changedAt, checkedAt };
    return resolver;
  }
}

async function nameServers({ configuration, behindForwarder }: typeof HOST_FILES): Promise<string[]> {
  const servers = parseNameServers(await readFile(configuration, 'latin1'));
  if (!servers.includes(FORWARDER)) return servers;
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
