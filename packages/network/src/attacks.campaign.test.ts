/** Attacks of a hostile sandbox. Each test names the attack and checks that the refusal is recorded. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { ManualClock } from '@torpor/engine/testing';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { clientHello } from '../testing/client-hello.ts';
import {
  type Guest,
  isWithoutNetwork,
  makeNetworkWorld,
  type NetworkWorld,
} from '../testing/network-world.ts';
import { RESOLVER_ADDRESS } from './firewall.ts';
import { runInNamespace } from './system-program.ts';

/** The machine may be busy. */
const PATIENT = { timeout: 10_000 };

describe.skipIf(await isWithoutNetwork())('a hostile sandbox', () => {
  const clock = new ManualClock();
  let world: NetworkWorld;
  let hostServer: Server;
  let hostPort: number;
  /** Connections that reached the host or another forbidden destination. */
  let reached: string[];

  beforeAll(async () => {
    world = await makeNetworkWorld({
      clock,
      limits: { connectionsPerSandbox: 20, peekMs: 400, silenceMs: 100 },
    });
    hostServer = createServer((socket) => {
      reached.push(`host from ${socket.remoteAddress}`);
      socket.on('error', () => {}).end('the host');
    }).listen(0, '::');
    await once(hostServer, 'listening');
    hostPort = (hostServer.address() as { port: number }).port;
    await world.serve(world.outside(0), 80, (socket) => socket.once('data', () => socket.end('good')));
    await world.serve(world.outside(0), 443, (socket) => socket.once('data', () => socket.end('good')));
    for (const port of [80, 443]) {
      await world.serve(world.outside(1), port, (socket) => {
        reached.push('the wrong server');
        socket.end('evil');
      });
    }
    world.names.set('good.example', [world.outside(0)]).set('evil.example', [world.outside(1)]);
  });
  afterAll(async () => {
    hostServer.close();
    await world.dispose();
  });
  beforeEach(() => {
    reached = [];
    world.refusals.splice(0);
  });

  const reasons = (guest: Guest) =>
    world.refusals.filter(({ instance }) => instance === guest.netns).map(({ reason }) => reason);
  /** The attempt was refused and reached no server. */
  const expectRefused = async (guest: Guest, host: string, port: number, send: string[], reason: string) => {
    const talk = await guest.do('talk', { host, port, send });
    expect(talk.received, `${host}:${port}`).toBe('');
    expect(talk.ended, `${host}:${port}`).toMatch(/^ECONNRE(SET|FUSED)$/);
    expect(reached).toEqual([]);
    expect(reasons(guest), `${host}:${port}`).toContain(reason);
  };
  const http = (host: string, target = '/') => [`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`];

  describe('towards the host', () => {
    it('cannot reach a port of the host through its gateway, nor the server’s own ports in the router', async () => {
      const guest = await world.guest();
      for (const port of [hostPort, 4_080, 53, 22]) {
        await expectRefused(guest, guest.hostAddress, port, [], 'sandbox_address');
      }
    });

    it('cannot reach a port of the host on any of the host’s addresses', async () => {
      const guest = await world.guest();
      const addresses = Object.values(networkInterfaces())
        .flatMap((entries) => entries ?? [])
        .filter(({ family, internal }) => family === 'IPv4' && !internal)
        .map(({ address }) => address);
      expect(addresses.length).toBeGreaterThan(1);
      for (const address of addresses) {
        const talk = await guest.do('talk', { host: address, port: hostPort });
        expect(talk, address).toMatchObject({ received: '', ended: 'ECONNRESET' });
      }
      expect(reached).toEqual([]);
      expect(reasons(guest)).toContain('host_address');
    });

    it('cannot reach the loopback of the host by sending loopback packets out', async () => {
      const guest = await world.guest();
      const routes = `route del local 127.0.0.0/8 dev lo table local
route del local 127.0.0.1 dev lo table local
route add 127.0.0.1/32 via ${guest.hostAddress} dev eth0 src ${guest.guestAddress}
`;
      await runInNamespace(guest.netns, 'ip', ['-batch', '-'], routes);
      await runInNamespace(guest.netns, 'sh', ['-c', 'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet']);
      const talk = await guest.do('talk', { host: '127.0.0.1', port: hostPort, ms: 500 });
      expect(talk.received).toBe('');
      expect(reached).toEqual([]);
      // The packet arrived and was redirected to the egress like all others.
      const table = await runInNamespace(`${world.tag}-router`, 'sh', ['-c', 'cat /proc/net/nf_conntrack']);
      expect(table).toMatch(/ dst=127\.0\.0\.1 .* sport=4080 /);
    });

    it('cannot reach the metadata service of a cloud', async () => {
      await expectRefused(await world.guest(), '169.254.169.254', 80, http('metadata'), 'private_address');
    });

    it('cannot reach the resolver’s address on another port', async () => {
      await expectRefused(await world.guest(), RESOLVER_ADDRESS, 80, [], 'private_address');
    });

    it('cannot open any of these by its own allow list', async () => {
      const own = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
      const address = own.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? '';
      const guest = await world.guest({
        mode: 'none',
        allow: ['0.0.0.0/0', address, '10.0.0.0/8', '127.0.0.1'],
      });
      await expectRefused(guest, address, hostPort, [], 'host_address');
      await expectRefused(guest, '10.0.0.1', 80, [], 'private_address');
    });

    it('cannot reach the host by a name that resolves to it', async () => {
      const own = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
      const address = own.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? '';
      world.names.set('host.example', [address]).set('loop.example', ['127.0.0.1']);
      const guest = await world.guest({ mode: 'none', allow: ['host.example', 'loop.example'] });
      for (const name of ['host.example', 'loop.example']) {
        expect(await guest.do('resolve', { name, type: 'A', server: RESOLVER_ADDRESS })).toBe('EREFUSED');
        await expectRefused(guest, world.outside(0), hostPort, http(name), 'host_address');
      }
    });

    it('cannot reach the host by IPv6, also when it sets an address itself', async () => {
      const guest = await world.guest();
      const plain = await guest.do('talk', { host: '2001:db8::1', port: hostPort });
      expect(plain).toMatchObject({
        isConnected: false,
        ended: expect.stringMatching(/^E(NETUNREACH|ADDRNOTAVAIL)$/),
      });
      await runInNamespace(guest.netns, 'sh', [
        '-ec',
        'for one in all eth0; do echo 0 > /proc/sys/net/ipv6/conf/$one/disable_ipv6; done; ip -6 addr add fe80::2/64 dev eth0 nodad; ip -6 route add default dev eth0',
      ]);
      const hostLocal = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
      const targets = hostLocal.filter(({ family, internal }) => family === 'IPv6' && !internal);
      const hosts = ['fe80::1', ...targets.map(({ address }) => address)].map((host) =>
        host.startsWith('fe80') ? `${host}%eth0` : host,
      );
      for (const host of hosts) {
        const talk = await guest.do('talk', { host, port: hostPort, ms: 300 });
        expect(talk, host).toMatchObject({ isConnected: false, received: '' });
      }
      expect(reached).toEqual([]);
    });
  });

  describe('towards other sandboxes', () => {
    it('cannot reach a port of another sandbox by TCP or UDP', async () => {
      const [one, other] = [await world.guest(), await world.guest()];
      await other.do('listen', { port: 8_080 });
      await expectRefused(one, other.guestAddress, 8_080, ['hello'], 'sandbox_address');
      expect(await one.do('datagram', { host: other.guestAddress, port: 8_080, send: 'x' })).toBe(
        'ECONNREFUSED',
      );
      expect(await other.do('ends', undefined as never)).toEqual([]);
    });

    it('cannot send packets with the address of another sandbox', async () => {
      const [one, other] = [await world.guest(), await world.guest()];
      // Sends once with its own address, so that the route is known and the forged packets really leave.
      expect(await one.do('resolve', { name: 'no.example', type: 'A', server: RESOLVER_ADDRESS })).toBe(
        'ENOTFOUND',
      );
      await runInNamespace(one.netns, 'ip', ['addr', 'add', `${other.guestAddress}/32`, 'dev', 'eth0']);
      await runInNamespace(one.netns, 'ip', [
        'route',
        'replace',
        'default',
        'via',
        one.hostAddress,
        'src',
        other.guestAddress,
      ]);
      const talk = await one.do('talk', {
        host: world.outside(0),
        port: 80,
        send: http('good.example'),
        ms: 1_500,
      });
      expect(talk).toMatchObject({ isConnected: false, received: '' });
      const lookup = { host: RESOLVER_ADDRESS, port: 53, send: 'x'.repeat(20), ms: 300 };
      expect(await one.do('datagram', lookup)).toBe('nothing');
      expect(world.network.usage(other.netns)).toEqual({ sent: 0, received: 0, connections: 0 });
      expect(world.refusals).toEqual([]);
      // Forged packets are not answered either; the answers would go to the other sandbox.
      await one.do('datagram', { host: world.outside(0), port: 98, send: 'x', ms: 100 });
      await other.do('datagram', { host: world.outside(0), port: 99, send: 'x' });
      clock.advance(60_000);
      await expect
        .poll(
          () =>
            world.refusals
              .filter(({ instance }) => instance === other.netns)
              .map(({ destination }) => destination),
          PATIENT,
        )
        .toEqual([`${world.outside(0)}:99`]);
    });
  });

  describe('by datagrams', () => {
    it('cannot send any except to the resolver, and fails at once', async () => {
      const guest = await world.guest();
      const targets: [string, number][] = [
        [world.outside(0), 53],
        [world.outside(0), 443],
        [guest.hostAddress, 53],
        [RESOLVER_ADDRESS, 123],
      ];
      for (const [host, port] of targets) {
        expect(await guest.do('datagram', { host, port, send: 'x' }), `${host}:${port}`).toBe('ECONNREFUSED');
      }
      // The kernel records rejected datagrams, and the list is read periodically.
      clock.advance(60_000);
      const recorded = () =>
        world.refusals
          .filter(({ via, instance }) => via === 'udp' && instance === guest.netns)
          .map(({ destination }) => destination);
      await expect.poll(recorded, PATIENT).toHaveLength(targets.length);
      expect(recorded().toSorted()).toEqual(targets.map(([host, port]) => `${host}:${port}`).toSorted());
    });
  });

  describe('by names', () => {
    it('gets no private address for a name, and the refusal is reported', async () => {
      world.names
        .set('private.example', ['10.0.0.1', '169.254.169.254'])
        .set('mixed.example', ['10.0.0.1', world.outside(0)]);
      const guest = await world.guest();
      const ask = (name: string) => guest.do('resolve', { name, type: 'A', server: RESOLVER_ADDRESS });
      expect(await ask('private.example')).toBe('EREFUSED');
      expect(reasons(guest)).toEqual(['private_address']);
      expect(await ask('mixed.example')).toEqual([world.outside(0)]);
    });

    it('gains nothing when a name changes between the lookup and the connection', async () => {
      let asked = 0;
      world.names.set('rebind.example', () => (asked++ === 0 ? [world.outside(0)] : ['127.0.0.1']));
      const guest = await world.guest({ mode: 'none', allow: ['rebind.example'] });
      expect(
        await guest.do('resolve', { name: 'rebind.example', type: 'A', server: RESOLVER_ADDRESS }),
      ).toEqual([world.outside(0)]);
      await expectRefused(guest, world.outside(0), hostPort, http('rebind.example'), 'host_address');
      expect(asked).toBe(2);
    });

    it('is connected to the server of the name it shows, not to the address it chose (Host)', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      const talk = await guest.do('talk', { host: world.outside(1), port: 80, send: http('good.example') });
      expect(talk.received).toBe('good');
      expect(reached).toEqual([]);
    });

    it('is connected to the server of the name it shows, not to the address it chose (TLS)', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      const hello = (await clientHello('good.example')).toString('latin1');
      const talk = await guest.do('talk', { host: world.outside(1), port: 443, send: [hello] });
      expect(talk.received).toBe('good');
      expect(reached).toEqual([]);
    });

    it('cannot reach an allowed address under another name (Host, TLS, none)', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      await guest.do('resolve', { name: 'good.example', type: 'A', server: RESOLVER_ADDRESS });
      const hello = (await clientHello('evil.example')).toString('latin1');
      const nameless = (await clientHello()).toString('latin1');
      await expectRefused(guest, world.outside(0), 80, http('evil.example'), 'not_allowed');
      await expectRefused(guest, world.outside(0), 443, [hello], 'not_allowed');
      await expectRefused(guest, world.outside(0), 443, [nameless], 'no_name');
      await expectRefused(guest, world.outside(0), 80, ['GET / HTTP/1.0\r\n\r\n'], 'no_name');
    });

    it('gains nothing from ambiguous requests', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      const requests = [
        http('good.example', 'http://evil.example/'),
        ['CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n'],
        ['GET / HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n'],
        ['GET / HTTP/1.1\r\nHost: good.example\r\n evil.example\r\n\r\n'],
      ];
      for (const send of requests) await expectRefused(guest, world.outside(1), 80, send, 'unclear_name');
    });

    it('can use a tunnel request only to the server of the allowed name itself', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      const send = ['CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n'];
      expect((await guest.do('talk', { host: world.outside(1), port: 80, send })).received).toBe('good');
      expect(reached).toEqual([]);
    });

    it('cannot hide a denied name by sending it in small pieces', async () => {
      const guest = await world.guest({ deny: ['evil.example'] });
      const hello = (await clientHello('evil.example')).toString('latin1');
      const pieces = hello.match(/[\s\S]{1,100}/g) ?? [];
      const talk = await guest.do('talk', { host: world.outside(1), port: 443, send: pieces, pauseMs: 1 });
      expect(talk.received).toBe('');
      expect(reached).toEqual([]);
      expect(reasons(guest)).toEqual(['denied']);
    });

    it('cannot hide a denied name by being silent at first', async () => {
      const guest = await world.guest({ deny: ['good.example'] });
      const heard: string[] = [];
      await world.serve(world.outside(2), 80, (socket) =>
        socket.on('data', (chunk) => heard.push(String(chunk))),
      );
      const talk = await guest.do('talk', {
        host: world.outside(2),
        port: 80,
        send: ['', ...http('good.example')],
        pauseMs: 300,
      });
      expect(talk.ended).toBe('ECONNRESET');
      expect(heard).toEqual([]);
      expect(reasons(guest)).toEqual(['denied']);
    });
  });

  describe('by exhausting resources', () => {
    it('cannot keep a connection waiting by never finishing its first message', async () => {
      const guest = await world.guest({ mode: 'none', allow: ['good.example'] });
      const hello = (await clientHello('good.example')).toString('latin1');
      for (const send of [[hello.slice(0, 50)], ['GET / HTTP/1.1\r\nHost: go'], []]) {
        const talk = await guest.do('talk', { host: world.outside(0), port: 443, send, isHalfClosed: false });
        expect(talk).toMatchObject({ received: '', ended: 'ECONNRESET' });
      }
      expect(reasons(guest)).toEqual(['too_slow']);
      const endless = `GET / HTTP/1.1\r\nX: ${'x'.repeat(20_000)}`;
      const talk = await guest.do('talk', {
        host: world.outside(0),
        port: 80,
        send: [endless],
        isHalfClosed: false,
      });
      expect(talk.ended).toBe('ECONNRESET');
      expect(reasons(guest)).toContain('unclear_name');
    });

    it('cannot have more connections than its limit, and takes none from other sandboxes', async () => {
      const [greedy, modest] = [await world.guest(), await world.guest()];
      await world.serve(world.outside(3), 80, (socket) => socket.write('here'));
      const crowd = greedy.do('crowd', { host: world.outside(3), port: 80, count: 60 });
      const talk = await modest.do('talk', { host: world.outside(0), port: 80, send: ['x'] });
      expect(talk.received).toBe('good');
      const { answered = 0, ...others } = await crowd;
      expect(answered).toBe(20);
      expect(Object.values(others).reduce((sum, count) => sum + count, 0)).toBe(40);
      expect(reasons(greedy)).toEqual(['too_many']);
    });
  });
});
