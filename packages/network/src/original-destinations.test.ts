import type { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { OriginalDestinations, parseTable } from './original-destinations.ts';

const line = (to: string, port: number) =>
  `ipv4     2 tcp      6 431999 ESTABLISHED src=10.213.0.6 dst=${to} sport=40000 dport=443 src=10.213.0.5 dst=10.213.0.6 sport=4080 dport=${port} [ASSURED] mark=0 zone=0 use=2\n`;
const socketTo = (remotePort: number) =>
  ({
    localAddress: '10.213.0.5',
    localPort: 4_080,
    remoteAddress: '10.213.0.6',
    remotePort,
    destroyed: false,
  }) as Socket;

describe('original destinations', () => {
  it('are found by the port that the egress sees, not by the one that the sandbox chose', async () => {
    const destinations = new OriginalDestinations(
      async () => line('198.51.100.1', 40_000) + line('198.51.100.2', 3_882),
    );
    expect(await destinations.of(socketTo(40_000))).toEqual({ address: '198.51.100.1', port: 443 });
    expect(await destinations.of(socketTo(3_882))).toEqual({ address: '198.51.100.2', port: 443 });
    expect(await destinations.of(socketTo(1))).toBeUndefined();
  });

  it('need one read of the table for all connections that arrived before the read', async () => {
    const table = line('198.51.100.1', 1) + line('198.51.100.2', 2) + line('198.51.100.3', 3);
    const begun: PromiseWithResolvers<string>[] = [];
    const destinations = new OriginalDestinations(() => {
      const reading = Promise.withResolvers<string>();
      begun.push(reading);
      return reading.promise;
    });
    const first = destinations.of(socketTo(1));
    await expect.poll(() => begun.length).toBe(1);
    // These connections came too late for the first read, which may have passed their entries already.
    const later = [destinations.of(socketTo(2)), destinations.of(socketTo(3))];
    begun[0]?.resolve(table);
    expect(await first).toEqual({ address: '198.51.100.1', port: 443 });
    await expect.poll(() => begun.length).toBe(2);
    begun[1]?.resolve(table);
    expect((await Promise.all(later)).map((found) => found?.address)).toEqual([
      '198.51.100.2',
      '198.51.100.3',
    ]);
    expect(begun).toHaveLength(2);
  });

  it('are found after a read that failed', async () => {
    let readings = 0;
    const destinations = new OriginalDestinations(async () => {
      if (++readings === 1) throw new Error('busy');
      return line('198.51.100.1', 1);
    });
    await expect(destinations.of(socketTo(1))).rejects.toThrow('busy');
    expect(await destinations.of(socketTo(1))).toEqual({ address: '198.51.100.1', port: 443 });
  });

  it('are parsed from the kernel’s file and from the output of conntrack', () => {
    const byProgram =
      'tcp      6 117 SYN_SENT src=10.213.0.6 dst=198.51.100.1 sport=1 dport=2 [UNREPLIED] src=10.213.0.5 dst=10.213.0.6 sport=3 dport=4 mark=0 use=1\n' +
      'udp      17 10 src=10.213.0.6 dst=198.51.100.1 sport=1 dport=2 src=10.213.0.5 dst=10.213.0.6 sport=3 dport=4\n';
    const counted =
      'ipv4     2 tcp      6 3 CLOSE src=10.213.0.6 dst=198.51.100.1 sport=1 dport=2 packets=1 bytes=60 src=10.213.0.5 dst=10.213.0.6 sport=3 dport=4 packets=1 bytes=60 mark=0\n';
    const expected = {
      from: { address: '10.213.0.6', port: 1 },
      to: { address: '198.51.100.1', port: 2 },
      replyFrom: { address: '10.213.0.5', port: 3 },
      replyTo: { address: '10.213.0.6', port: 4 },
    };
    expect(parseTable(byProgram)).toEqual([{ state: 'SYN_SENT', ...expected }]);
    expect(parseTable(counted)).toEqual([{ state: 'CLOSE', ...expected }]);
  });
});
