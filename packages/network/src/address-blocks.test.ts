import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AddressBlocks } from './address-blocks.ts';
import { formatIpv4Network, type Ipv4Network, ipv4Network } from './ipv4.ts';
import { SlotPool } from './slot-pool.ts';

describe('address blocks', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'torpor-blocks-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  async function server(
    tag: string,
    range = '10.213.0.0/20',
    taken: readonly string[] = [],
    bootId = 'boot',
  ) {
    const dataDir = join(root, tag);
    await mkdir(dataDir, { recursive: true });
    return new AddressBlocks({
      directory: join(root, 'claims'),
      ranges: range.split(' ').map(ipv4Network),
      owner: { tag, dataDir },
      bootId,
      hostNetworks: async () => taken.map(ipv4Network),
    });
  }
  const text = (blocks: readonly Ipv4Network[]) => blocks.map(formatIpv4Network).toSorted();

  it('are claimed only once on the machine, by any number of servers at the same time', async () => {
    const servers = await Promise.all(['aaaaaa', 'bbbbbb', 'cccccc', 'dddddd'].map((tag) => server(tag)));
    const claimed = await Promise.all(servers.flatMap((one) => Array.from({ length: 4 }, () => one.claim())));
    expect(new Set(text(claimed)).size).toBe(16);
    await expect(servers[0]?.claim()).rejects.toMatchObject({ code: 'capacity' });
    await servers[1]?.release(claimed[0] as Ipv4Network);
    expect(await servers[2]?.claim()).toEqual(claimed[0]);
  });

  it('never overlap a network to which the host has a route', async () => {
    const one = await server('aaaaaa', '10.213.0.0/22', [
      '10.213.1.128/30',
      '10.213.2.0/23',
      '192.168.0.0/16',
    ]);
    expect(formatIpv4Network(await one.claim())).toBe('10.213.0.0/24');
    const error = await one.claim().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'capacity' });
  });

  it('come from the next range when the host has a route to the whole first one', async () => {
    const one = await server('aaaaaa', '10.213.0.0/16 172.29.0.0/24', ['10.0.0.0/8']);
    expect(formatIpv4Network(await one.claim())).toBe('172.29.0.0/24');
  });

  it('are stale when their data directory is gone or after a reboot', async () => {
    const [gone, kept] = [await server('aaaaaa'), await server('bbbbbb')];
    await gone.claim();
    await kept.claim();
    await rm(join(root, 'aaaaaa'), { recursive: true });
    const stale = (claims: Awaited<ReturnType<AddressBlocks['claims']>>) =>
      claims.filter(({ isStale }) => isStale).map(({ tag }) => tag);
    expect(stale(await kept.claims())).toEqual(['aaaaaa']);
    const later = await server('bbbbbb', '10.213.0.0/20', [], 'another boot');
    expect(stale(await later.claims()).toSorted()).toEqual(['aaaaaa', 'bbbbbb']);
  });

  it('provide more slots when a server has used all of its own', async () => {
    const one = await server('aaaaaa');
    const routed: Ipv4Network[] = [];
    const pool = new SlotPool(one, [await one.claim()], new Set(), async (block) => void routed.push(block));
    const slots = await Promise.all(Array.from({ length: 130 }, () => pool.take()));
    expect(new Set(slots).size).toBe(130);
    expect(routed).toHaveLength(2);
    await pool.releaseAll();
    expect(await readdir(join(root, 'claims'))).toEqual([]);
  });

  it('reuse a returned slot only after all other slots', async () => {
    const one = await server('aaaaaa');
    const pool = new SlotPool(one, [await one.claim()], new Set(), async () => {});
    const first = await pool.take();
    pool.giveBack(first);
    const others = await Promise.all(Array.from({ length: 62 }, () => pool.take()));
    expect(others).not.toContain(first);
    expect(await pool.take()).toBe(first);
  });
});
