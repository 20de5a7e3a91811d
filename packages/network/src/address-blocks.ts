/**
 * Blocks of private addresses, shared by every server and test on this machine.
 *
 * A claim is a symbolic link in one directory for the whole host, because a link is made together with what
 * it says in one step: two servers can neither claim the same block nor see half a claim. It points nowhere;
 * its target says who claimed. A claim of an earlier boot, or of a data directory that is no more, is stale:
 * whoever finds it may take away what it stands for.
 */
import { randomInt } from 'node:crypto';
import { access, mkdir, readdir, readlink, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { formatIpv4, formatIpv4Network, type Ipv4Network, overlap, parseIpv4, sizeOf } from './ipv4.ts';

/** Whose addresses, name spaces and interfaces these are. */
export interface Owner {
  /** Six hexadecimal digits; the names of everything we make in the kernel begin with them. */
  readonly tag: string;
  readonly dataDir: string;
}

export interface Claim extends Owner {
  readonly block: Ipv4Network;
  readonly isStale: boolean;
}

export interface AddressBlocksOptions {
  /** The same for every server of the machine. */
  readonly directory: string;
  /** Where blocks are taken from, the first range first. */
  readonly ranges: readonly Ipv4Network[];
  readonly owner: Owner;
  readonly bootId: string;
  /** Networks that the host has routes to or addresses in. */
  readonly hostNetworks: () => Promise<readonly Ipv4Network[]>;
}

const BLOCK_BITS = 24;

export class AddressBlocks {
  readonly #options: AddressBlocksOptions;

  constructor(options: AddressBlocksOptions) {
    this.#options = options;
  }

  async claims(): Promise<Claim[]> {
    const names = await readdir(this.#options.directory).catch(whenMissing<string[]>([]));
    const claims = await Promise.all(names.map((name) => this.#read(name)));
    return claims.filter((claim) => claim !== undefined);
  }

  async claim(): Promise<Ipv4Network> {
    const { directory, ranges } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o755 });
    const taken = await this.#options.hostNetworks();
    for (const range of ranges) {
      for (const block of blocksOf(range)) {
        if (taken.some((network) => overlap(network, block))) continue;
        if (await this.#write(block)) return block;
      }
    }
    throw noneFree(ranges, taken);
  }

  async release(block: Ipv4Network): Promise<void> {
    await rm(this.#path(block), { force: true });
  }

  #path({ base }: Ipv4Network): string {
    return join(this.#options.directory, formatIpv4(base));
  }

  async #write(block: Ipv4Network): Promise<boolean> {
    const { tag, dataDir } = this.#options.owner;
    try {
      await symlink(JSON.stringify({ boot: this.#options.bootId, tag, dataDir }), this.#path(block));
      return true;
    } catch (thrown) {
      if (errnoOf(thrown) === 'EEXIST') return false;
      throw thrown;
    }
  }

  async #read(name: string): Promise<Claim | undefined> {
    const base = parseIpv4(name);
    const target = await readlink(join(this.#options.directory, name)).catch(whenMissing(undefined));
    const said = target === undefined ? undefined : parseTarget(target);
    if (base === undefined || said === undefined) return undefined;
    const isStale = said.boot !== this.#options.bootId || !(await exists(said.dataDir));
    return { block: { base, bits: BLOCK_BITS }, tag: said.tag, dataDir: said.dataDir, isStale };
  }
}

/** From a random one on, so that an address is seldom given to somebody soon after another had it. */
function* blocksOf(range: Ipv4Network): Generator<Ipv4Network> {
  const size = sizeOf(BLOCK_BITS);
  const count = Math.floor(sizeOf(range.bits) / size);
  const first = count === 0 ? 0 : randomInt(count);
  for (let index = 0; index < count; index++) {
    yield { base: range.base + ((first + index) % count) * size, bits: BLOCK_BITS };
  }
}

function noneFree(ranges: readonly Ipv4Network[], taken: readonly Ipv4Network[]): TorporError {
  const inTheWay = taken.filter((network) => ranges.some((range) => overlap(range, network)));
  const wanted = ranges.map(formatIpv4Network).join(', ');
  return new TorporError('capacity', `No addresses for sandboxes are free in ${wanted}.`, {
    hint: 'Choose another private range for sandboxes, one that the host has no routes to.',
    details: { routes: inTheWay.slice(0, 20).map(formatIpv4Network) },
  });
}

function parseTarget(target: string): { boot: string; tag: string; dataDir: string } | undefined {
  try {
    const { boot, tag, dataDir } = JSON.parse(target) as Record<string, unknown>;
    if (typeof boot !== 'string' || typeof tag !== 'string' || typeof dataDir !== 'string') return undefined;
    return { boot, tag, dataDir };
  } catch {
    return undefined;
  }
}

/** Only proved absence counts: a directory that cannot be looked at just now still has its owner. */
function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    (thrown: unknown) => errnoOf(thrown) !== 'ENOENT',
  );
}

function whenMissing<T>(value: T): (thrown: unknown) => T {
  return (thrown) => {
    if (errnoOf(thrown) === 'ENOENT') return value;
    throw thrown;
  };
}
