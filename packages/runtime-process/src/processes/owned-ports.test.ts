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
  return { ports: new OwnedPorts(host), members, looks: () => looks };
}

const at = (address: string, socket: string): Listener => ({ address, port: 80, socket });

describe('dialling a port', () => {
  const instance = newInstance();

  it.each([
    ['everywhere', '0.0.0.0', '127.0.0.1'],
    ['everywhere on IPv6', '::', '127.0.0.1'],
    ['on IPv6 loopback', '::1', '::1'],
    ['on one address', '192.0.2.7', '192.0.2.7'],
  ])('finds the address on which the process listens: %s', async (_, address, host) => {
    const { ports, members } = machine([at(address, 's1')], ['s1']);
    expect(await ports.find(instance, 80, members)).toEqual({ host, port: 80 });
  });

  it('finds no address when no process of the instance listens', async () => {
    const { ports, members } = machine([at('127.0.0.1', 's1')], []);
    expect(await ports.find(instance, 80, members)).toBeNull();
    expect(await ports.find(instance, 81, members)).toBeNull();
  });

  it('finds no address when another process might accept the connection', async () => {
    for (const other of ['127.0.0.1', '0.0.0.0', '::']) {
      const { ports, members } = machine([at('127.0.0.1', 's1'), at(other, 's2')], ['s1']);
      expect(await ports.find(instance, 80, members)).toBeNull();
    }
    const { ports, members } = machine([at('::1', 's1'), at('127.0.0.1', 's2')], ['s1']);
    expect(await ports.find(instance, 80, members)).toEqual({ host: '::1', port: 80 });
  });

  it('reads the open files of processes once, and again for another socket or instance', async () => {
    const listeners = [at('127.0.0.1', 's1')];
    const { ports, members, looks } = machine(listeners, ['s1', 's2']);
    for (let times = 0; times < 3; times++) await ports.find(instance, 80, members);
    expect(looks()).toBe(1);
    listeners[0] = at('127.0.0.1', 's2');
    await ports.find(instance, 80, members);
    await ports.find(newInstance(), 80, members);
    expect(looks()).toBe(3);
    ports.forget(instance);
    await ports.find(instance, 80, members);
    expect(looks()).toBe(4);
  });
});
