import { type AddressInfo, createServer } from 'node:net';
import type { HostProcesses, ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { chooseFreePort } from './processes/free-port.ts';
import { availableUsers, chooseUser } from './processes/sandbox-users.ts';

describe('the user id of an instance', () => {
  const host = {
    all: async () => [{ pid: 1 } as ProcessFacts],
    userIds: async () => [701, 701, 0, 701],
  } as unknown as HostProcesses;
  const range = { first: 700, count: 4 };
  const inOrder = () => {
    let next = 0;
    return (below: number) => next++ % below;
  };

  it('belongs to no other instance and to no running process', async () => {
    expect(await chooseUser(range, new Set([700]), host, inOrder())).toBe(702);
  });

  it('is refused when all ids are taken', async () => {
    const taken = new Set([700, 702, 703]);
    await expect(chooseUser(range, taken, host, inOrder())).rejects.toMatchObject({ code: 'capacity' });
  });
});

describe('the range of user ids', () => {
  const wanted = { first: 700_000, count: 1_000_000 };

  it('is the default range outside of a container', () => {
    expect(availableUsers('         0          0 4294967295\n', wanted)).toEqual(wanted);
  });

  it('is near the upper end of the ids of a container, below the very last', () => {
    expect(availableUsers('0 1000 1\n1 100000 65536\n', wanted)).toEqual({ first: 49_153, count: 8_192 });
  });

  it('is empty where root is mapped to one ordinary user, or where the mapping is unknown', () => {
    expect(availableUsers('0 1000 1\n', wanted)).toBeNull();
    expect(availableUsers('', wanted)).toBeNull();
  });
});

describe('the port of a service', () => {
  it('is one that no instance has and no process listens on', async () => {
    const host = createServer();
    await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
    const busy = (host.address() as AddressInfo).port;
    const offers = [busy - 20_000, 5, 6];
    try {
      const port = await chooseFreePort(new Set([20_005]), () => offers.shift() ?? 0);
      expect(port).toBe(20_006);
    } finally {
      await new Promise((resolve) => host.close(resolve));
    }
  });

  it('is refused when none is free', async () => {
    await expect(chooseFreePort(new Set([20_000]), () => 0)).rejects.toMatchObject({ code: 'capacity' });
  });
});
