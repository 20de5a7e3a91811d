import { newInstance } from '@torpor/engine/testing';
import type { HostProcesses, Listener, ProcessFacts } from '@torpor/host';
import { describe, expect, it } from 'vitest';
import { OwnedPorts } from './owned-ports.ts';

const ours = { pid: 7 } as ProcessFacts;

/** A host on which the process of the instance holds the sockets `owned`. */
function machine(listeners: readonly Listener[], owned: readonly string[]) {
  let looks = 0;
  const host = {
    listeners: async (port: number) => listeners.filter((one) => one.port === port),
    heldSockets: async (_: ProcessFacts, sockets: ReadonlySet<string>) =>
      owned.filter((socket) => sockets.has(socket)),
  } as unknown as HostProcesses;
  const members = async () => {
    looks += 1;
    return [ours];
  };
  return { ports: new OwnedPorts(host), owner: { user: 1000, members }, looks: () => looks };
}

const at = (address: string, socket: string, user = 0): Listener => ({ address, port: 80, socket, user });

describe('dialling a port', () => {
  const instance = newInstance();

  it.each([
    ['everywhere', '0.0.0.0', '127.0.0.1'],
    ['everywhere on IPv6', '::', '127.0.0.1'],
    ['on IPv6 loopback', '::1', '::1'],
    ['on one address', '192.0.2.7', '192.0.2.7'],
  ])('finds the address on which the process listens: %s', async (_, address, host) => {
    const { ports, owner } = machine([at(address, 's1')], ['s1']);
    expect(await ports.find(instance, 80, owner)).toEqual({ host, port: 80 });
  });

  it('finds what the user of the instance has opened without reading open files', async () => {
    const { ports, owner, looks } = machine([at('::', 's1', 1000)], []);
    expect(await ports.find(instance, 80, owner)).toEqual({ host: '127.0.0.1', port: 80 });
    expect(await ports.find(instance, 80, { ...owner, user: null })).not.toBeNull();
    expect(looks()).toBe(0);
    expect(await ports.find(newInstance(), 80, { ...owner, user: 1001 })).toBeNull();
  });

  it('finds no address when no process of the instance listens', async () => {
    const { ports, owner } = machine([at('127.0.0.1', 's1')], []);
    expect(await ports.find(instance, 80, owner)).toBeNull();
    expect(await ports.find(instance, 81, owner)).toBeNull();
  });

  it('finds no address when another process might accept the connection', async () => {
    for (const other of ['127.0.0.1', '0.0.0.0', '::']) {
      const { ports, owner } = machine([at('127.0.0.1', 's1'), at(other, 's2')], ['s1']);
      expect(await ports.find(instance, 80, owner)).toBeNull();
    }
    const { ports, owner } = machine([at('::1', 's1'), at('127.0.0.1', 's2')], ['s1']);
    expect(await ports.find(instance, 80, owner)).toEqual({ host: '::1', port: 80 });
  });

  it('reads the open files of processes once, and again for another socket or instance', async () => {
    const listeners = [at('127.0.0.1', 's1')];
    const { ports, owner, looks } = machine(listeners, ['s1', 's2']);
    for (let times = 0; times < 3; times++) await ports.find(instance, 80, owner);
    expect(looks()).toBe(1);
    listeners[0] = at('127.0.0.1', 's2');
    await ports.find(instance, 80, owner);
    await ports.find(newInstance(), 80, owner);
    expect(looks()).toBe(3);
    ports.forget(instance);
    await ports.find(instance, 80, owner);
    expect(looks()).toBe(4);
  });
});
