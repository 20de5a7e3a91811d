/**
 * Divides private address ranges into blocks among all servers and tests on this machine.
 *
 * A claim of a block is a symbolic link in one directory for the whole host. The kernel creates a link and its target in one
 * step, so two servers can neither claim the same block nor read half a claim. The target is no path, but names the owner.
 * A claim of an earlier boot or of a deleted data directory is stale: any server may remove what belongs to it.
 */
import { randomInt } from 'node:crypto';
import { access, mkdir, readdir, readlink, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { formatIpv4, formatIpv4Network, type Ipv4Network, overlap, parseIpv4, sizeOf } from './ipv4.ts';

/** The server that owns addresses, namespaces and interfaces. */
export interface Owner {
  /** Six hexadecimal digits. The names of all namespaces of the server begin with them. */
  readonly tag: string;
  readonly dataDir: string;
}

export interface Claim extends Owner {
  readonly block: Ipv4Network;
  readonly isStale: boolean;
}

export interface AddressBlocksOptions {
  /** The directory of claims, the same for every server of the machine. */
  readonly directory: string;
  /** The ranges that are divided into blocks. The first range is used first. */
  readonly ranges: readonly Ipv4Network[];
  readonly owner: Owner;
  readonly bootId: string;
  /** Networks to which the host has routes or in which it has addresses. */
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
    const owner = target === undefined ? undefined : parseTarget(target);
    if (base === undefined || owner === undefined) return undefined;
    const isStale = owner.boot !== this.#options.bootId || !(await exists(owner.dataDir));
    return { block: { base, bits: BLOCK_BITS }, tag: owner.tag, dataDir: owner.dataDir, isStale };
  }
}

/** Starts at a random block, so that an address is seldom reused soon. */
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

const targetSchema = z.object({ boot: z.string(), tag: z.string(), dataDir: z.string() });

function parseTarget(target: string): z.infer<typeof targetSchema> | undefined {
  try {
    return targetSchema.parse(JSON.parse(target));
  } catch {
    return undefined;
  }
}

/** Only proved absence counts: a directory that cannot be read at the moment still has its owner. */
function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    (thrown: unknown) => !isMissing(thrown),
  );
}

function whenMissing<T>(value: T): (thrown: unknown) => T {
  return (thrown) => {
    if (isMissing(thrown)) return value;
    throw thrown;
  };
}
