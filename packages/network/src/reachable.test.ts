import { ManualClock } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { ipv4Network, parseIpv4 } from './ipv4.ts';
import { Reachable } from './reachable.ts';

const ROUTES = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 203.0.114.0/24 2 0 2
        |-- 203.0.114.9
           /32 host LOCAL
        |-- 203.0.114.255
           /32 link BROADCAST
     |-- 9.9.8.0
        /24 host LOCAL
`;

function reachable(openNetworks: string[] = [], routes = () => ROUTES) {
  const clock = new ManualClock();
  const sandboxRanges = [ipv4Network('10.213.0.0/16')];
  const one = new Reachable({
    openNetworks: openNetworks.map(ipv4Network),
    sandboxRanges,
    readRoutes: routes,
    clock,
  });
  return { clock, reasonUnreachable: (address: string) => one.reasonUnreachable(parseIpv4(address) ?? 0) };
}

describe('the addresses that sandboxes can reach', () => {
  it('include the public internet', () => {
    const { reasonUnreachable } = reachable();
    for (const address of ['1.1.1.1', '203.0.114.8', '223.255.255.255', '100.128.0.1', '172.32.0.1']) {
      expect(reasonUnreachable(address), address).toBeUndefined();
    }
  });

  it('exclude private, link-local, shared, benchmark, documentation, multicast and reserved ones', () => {
    const { reasonUnreachable } = reachable();
    const addresses =
      '0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 ' +
      '192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255';
    for (const address of addresses.split(' '))
      expect(reasonUnreachable(address), address).toBe('private_address');
  });

  it('exclude all present addresses of the host', () => {
    let routes = ROUTES;
    const { reasonUnreachable, clock } = reachable([], () => routes);
    expect(reasonUnreachable('203.0.114.9')).toBe('host_address');
    expect(reasonUnreachable('9.9.8.77')).toBe('host_address');
    expect(reasonUnreachable('1.2.3.4')).toBeUndefined();
    routes = '     |-- 1.2.3.4\n        /32 host LOCAL\n';
    clock.advance(1_000);
    expect(reasonUnreachable('1.2.3.4')).toBe('host_address');
    expect(reasonUnreachable('203.0.114.9')).toBeUndefined();
  });

  it('include networks that the operator opened, but never the host, sandboxes, loopback or metadata services', () => {
    const { reasonUnreachable } = reachable(['0.0.0.0/0']);
    expect(reasonUnreachable('10.0.0.1')).toBeUndefined();
    expect(reasonUnreachable('10.213.4.6')).toBe('sandbox_address');
    expect(reasonUnreachable('203.0.114.9')).toBe('host_address');
    for (const address of ['127.0.0.1', '169.254.169.254', '224.0.0.1', '0.0.0.0']) {
      expect(reasonUnreachable(address), address).toBe('private_address');
    }
  });
});
