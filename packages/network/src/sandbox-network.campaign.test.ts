import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isWithoutNetwork, makeNetworkWorld, type NetworkWorld } from '../testing/network-world.ts';
import { RESOLVER_ADDRESS } from './firewall.ts';
import { isLiveNamespace } from './namespaces.ts';
import { openSandboxNetwork } from './open-network.ts';
import { parseTable, tableReader } from './original-destinations.ts';
import { runInNamespace } from './system-program.ts';

/** Echoes everything when the other side ends. */
function echo(socket: Socket): void {
  socket.on('data', (chunk) => socket.write(chunk)).on('end', () => socket.end());
}

/** The machine may be busy. */
const PATIENT = { timeout: 10_000 };

describe.skipIf(await isWithoutNetwork())('the network of sandboxes', () => {
  let world: NetworkWorld;
  beforeAll(async () => {
    world = await makeNetworkWorld();
  });
  afterEach(() => world.clear());
  afterAll(() => world.dispose());

  const dialled = async (host: string, port: number) => {
    const socket = connect({ host, port }).on('error', () => {});
    await once(socket, 'connect');
    return socket;
  };

  describe('attach', () => {
    it('gives each instance its own namespace, which the host can dial', async () => {
      const [one, other] = [await world.guest(), await world.guest()];
      expect(one.guestAddress).not.toBe(other.guestAddress);
      for (const guest of [one, other]) {
        await guest.do('listen', { port: 8_080 });
        const socket = await dialled(guest.guestAddress, 8_080);
        socket.end('hello');
        const [answer] = await once(socket, 'data');
        expect(String(answer)).toBe('hello');
      }
      expect((await world.network.list()).toSorted()).toEqual([one.netns, other.netns].toSorted());
    });

    it('sets address and route again after they were removed', async () => {
      const guest = await world.guest();
      await runInNamespace(guest.netns, 'ip', ['addr', 'flush', 'dev', 'eth0']);
      expect(await world.network.attach(guest.netns, {})).toMatchObject({ guestAddress: guest.guestAddress });
      await world.serve(world.outside(0), 80, echo);
      const talk = await guest.do('talk', { host: world.outside(0), port: 80, send: ['hello'] });
      expect(talk.received).toBe('hello');
    });

    it('sets no IPv6 address', async () => {
      const { netns } = await world.network.attach(world.nameOf(0), {});
      expect(await runInNamespace(netns, 'ip', ['-6', 'addr', 'show', 'dev', 'eth0'])).toBe('');
    });

    it('refuses invalid rules before it creates anything', async () => {
      const name = world.nameOf(7);
      await expect(world.network.attach(name, { allow: ['http://x'] })).rejects.toMatchObject({
        code: 'invalid_request',
      });
      expect(await world.network.list()).toEqual([]);
    });

    it('touches only names with the tag of its server', async () => {
      for (const name of [
        'abcdef-x-1',
        `${world.tag}-router`,
        `${world.tag}-a\nnetns del x`,
        `${world.tag}-${'x'.repeat(80)}`,
      ]) {
        await expect(world.network.attach(name, {})).rejects.toMatchObject({ code: 'internal' });
      }
    });

    it('attaches many instances at once with different addresses', async () => {
      const names = Array.from({ length: 12 }, (_, index) => world.nameOf(index));
      const attached = await Promise.all(names.map((name) => world.network.attach(name, {})));
      expect(new Set(attached.map(({ guestAddress }) => guestAddress)).size).toBe(12);
    });
  });

  describe('detach', () => {
    it('leaves nothing, can be repeated, and cuts open connections', async () => {
      const guest = await world.guest();
      await world.serve(world.outside(0), 80, echo);
      await guest.do('open', { host: world.outside(0), port: 80, send: 'hello' });
      await world.network.detach(guest.netns);
      await world.network.detach(guest.netns);
      await world.network.detach(world.nameOf(99));
      expect(await isLiveNamespace(guest.netns)).toBe(false);
      expect(await world.network.list()).toEqual([]);
      expect(() => world.network.usage(guest.netns)).toThrow(expect.objectContaining({ code: 'not_found' }));
    });

    it('removes the name of a namespace that no longer exists, as after a reboot', async () => {
      await writeFile(`/run/netns/${world.nameOf(9)}`, '');
      expect(await world.network.list()).toEqual([world.nameOf(9)]);
      await world.network.detach(world.nameOf(9));
      expect(await world.network.list()).toEqual([]);
    });
  });

  describe('a connection to the outside', () => {
    it('carries bytes and ends in both directions, and is counted', async () => {
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest();
      const talk = await guest.do('talk', {
        host: world.outside(0),
        port: 80,
        send: ['hello ', 'world'],
        pauseMs: 10,
      });
      expect(talk).toEqual({ isConnected: true, received: 'hello world', ended: 'end' });
      expect(world.network.usage(guest.netns)).toEqual({ sent: 11, received: 11, connections: 0 });
    });

    it('lets the server send first', async () => {
      await world.serve(world.outside(0), 22, (socket) => socket.end('SSH-2.0-x\r\n'));
      const guest = await world.guest();
      const talk = await guest.do('talk', { host: world.outside(0), port: 22, isHalfClosed: false });
      expect(talk.received).toBe('SSH-2.0-x\r\n');
    });

    it('continues after the sandbox has ended its side', async () => {
      await world.serve(world.outside(0), 80, (socket) => {
        let got = '';
        socket
          .on('data', (chunk) => (got += String(chunk)))
          .on('end', () => setTimeout(() => socket.end(`after ${got}`), 100));
        socket.allowHalfOpen = true;
      });
      const guest = await world.guest();
      const talk = await guest.do('talk', { host: world.outside(0), port: 80, send: ['end'] });
      expect(talk).toMatchObject({ received: 'after end', ended: 'end' });
    });

    it('is reset when no server listens and when the other side resets', async () => {
      await world.serve(world.outside(0), 80, (socket) => socket.resetAndDestroy());
      const guest = await world.guest();
      expect(await guest.do('talk', { host: world.outside(1), port: 81 })).toMatchObject({
        ended: 'ECONNRESET',
      });
      expect(await guest.do('talk', { host: world.outside(0), port: 80, isHalfClosed: false })).toMatchObject(
        { ended: 'ECONNRESET' },
      );
      expect(world.refusals).toEqual([]);
    });

    it('reaches the right destination when one port of the sandbox is used for two', async () => {
      await world.serve(world.outside(0), 80, (socket) => socket.end('first'));
      await world.serve(world.outside(1), 80, (socket) => socket.end('second'));
      const guest = await world.guest();
      const talks = [0, 1].map((index) =>
        guest.do('talk', { host: world.outside(index), port: 80, localPort: 40_000, isHalfClosed: false }),
      );
      expect((await Promise.all(talks)).map(({ received }) => received)).toEqual(['first', 'second']);
    });

    it('is no faster than the slower side', async () => {
      let server: Socket | undefined;
      await world.serve(world.outside(0), 80, (socket) => {
        server = socket.pause();
      });
      const guest = await world.guest();
      const size = 32 * 1024 * 1024;
      const talk = guest.do('talk', {
        host: world.outside(0),
        port: 80,
        send: ['x'.repeat(size)],
        ms: 25_000,
      });
      const sent = () => world.network.usage(guest.netns).sent;
      let before = 0;
      const isAtRest = () => {
        const rests = before > 0 && before === sent();
        before = sent();
        return rests;
      };
      await expect.poll(isAtRest, { interval: 300, timeout: 10_000 }).toBe(true);
      expect(sent()).toBeLessThan(size / 2);
      server?.on('end', () => server?.end(`all ${server.bytesRead}`)).resume();
      expect(await talk).toMatchObject({ received: `all ${size}`, ended: 'end' });
    });
  });

  describe('the connection tracking table', () => {
    it('has the same content where only the program conntrack can read it', async () => {
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest();
      await guest.do('open', { host: world.outside(0), port: 80, send: 'hello' });
      const router = `${world.tag}-router`;
      const byProgram = await tableReader(router, undefined)().catch(TorporError.from);
      if (byProgram instanceof TorporError) return expect(byProgram.code).toBe('capability_unsupported');
      const byKernel = await runInNamespace(router, 'sh', ['-c', 'cat /proc/net/nf_conntrack']);
      const ends = (table: string) =>
        parseTable(table).map(({ from, to, replyFrom, replyTo }) => ({ from, to, replyFrom, replyTo }));
      expect(ends(byProgram)).toEqual(ends(byKernel));
      expect(ends(byProgram)).toContainEqual(
        expect.objectContaining({ to: { address: world.outside(0), port: 80 } }),
      );
    });
  });

  describe('the policy', () => {
    it('with "none" refuses every destination and reports it', async () => {
      world.names.set('any.example', [world.outside(0)]);
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest({ mode: 'none' });
      expect(await guest.do('talk', { host: world.outside(0), port: 80, send: ['x'] })).toMatchObject({
        received: '',
        ended: 'ECONNRESET',
      });
      expect(await guest.do('resolve', { name: 'any.example', type: 'A', server: RESOLVER_ADDRESS })).toBe(
        'EREFUSED',
      );
      expect(world.refusals).toMatchObject([
        { instance: guest.netns, via: 'tcp', destination: `${world.outside(0)}:80`, reason: 'not_allowed' },
        { instance: guest.netns, via: 'dns', destination: 'any.example', reason: 'not_allowed' },
      ]);
    });

    it('allows a protocol without names to an address that was resolved from an allowed name', async () => {
      world.names.set('db.example', [world.outside(0)]);
      await world.serve(world.outside(0), 5_432, (socket) => socket.end('ready'));
      const guest = await world.guest({ mode: 'none', allow: ['db.example:5432'] });
      const options = { host: world.outside(0), port: 5_432, isHalfClosed: false };
      expect((await guest.do('talk', { ...options, send: ['\0\0\0\x08'] })).ended).toBe('ECONNRESET');
      await guest.do('resolve', { name: 'db.example', type: 'A', server: RESOLVER_ADDRESS });
      expect((await guest.do('talk', { ...options, send: ['\0\0\0\x08'] })).received).toBe('ready');
      // The client sends nothing and is connected after a moment.
      expect((await guest.do('talk', options)).received).toBe('ready');
    });

    it('can change while the sandbox runs, and cuts connections that are no longer allowed', async () => {
      await world.serve(world.outside(0), 80, echo);
      await world.serve(world.outside(1), 80, echo);
      const guest = await world.guest();
      const request = 'GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n';
      for (const index of [0, 1])
        await guest.do('open', { host: world.outside(index), port: 80, send: request });
      expect(world.network.usage(guest.netns).connections).toBe(2);
      world.network.setPolicy(guest.netns, { deny: [world.outside(0)] });
      await expect.poll(() => guest.do('ends', undefined as never), PATIENT).toEqual(['reset']);
      expect(world.network.usage(guest.netns).connections).toBe(1);
      world.network.setPolicy(guest.netns, { deny: ['bad.example'] });
      await expect.poll(() => guest.do('ends', undefined as never), PATIENT).toEqual(['reset', 'reset']);
      expect(world.refusals.map(({ reason, rule }) => [reason, rule])).toEqual([
        ['denied', world.outside(0)],
        ['denied', 'bad.example'],
      ]);
    });
  });

  describe('the resolver', () => {
    const ask = (name: string, type: string) =>
      world.guest().then((guest) => guest.do('resolve', { name, type, server: RESOLVER_ADDRESS }));

    it('answers names, and returns no IPv6 records', async () => {
      world.names.set('a.example', [world.outside(0), world.outside(1)]);
      const guest = await world.guest();
      const of = (name: string, type: string) =>
        guest.do('resolve', { name, type, server: RESOLVER_ADDRESS });
      expect(await of('A.Example', 'A')).toEqual([world.outside(0), world.outside(1)]);
      expect(await of('a.example', 'AAAA')).toBe('ENODATA');
      expect(await of('no.example', 'A')).toBe('ENOTFOUND');
      expect(await of('a.example', 'NAPTR')).toBe('ENOTIMP');
      expect(await of('1.113.0.203.in-addr.arpa', 'PTR')).toBe('ENOTFOUND');
    });

    it('knows no names of the host’s files and network, and resolves localhost to the sandbox', async () => {
      world.names.set('vm', ['198.51.100.1']).set('localhost', ['198.51.100.1']);
      expect(await ask('vm', 'A')).toBe('ENOTFOUND');
      expect(await ask('app.localhost', 'A')).toEqual(['127.0.0.1']);
    });

    it('answers by TCP when the answer does not fit a datagram', async () => {
      world.names.set('long.example', [world.outside(0)]);
      expect(await ask('long.example', 'TXT')).toEqual([
        ['x'.repeat(200)],
        ['y'.repeat(200)],
        ['z'.repeat(200)],
      ]);
    });

    it('survives malformed messages', async () => {
      world.names.set('a.example', [world.outside(0)]);
      const guest = await world.guest();
      for (const send of [
        'x',
        'x'.repeat(20),
        '\0\x01\x01\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01',
        `\0\x02${'\xff'.repeat(3_000)}`,
      ]) {
        await guest.do('datagram', { host: RESOLVER_ADDRESS, port: 53, send, ms: 50 });
        await guest.do('talk', {
          host: RESOLVER_ADDRESS,
          port: 53,
          send: [`\xff\xff${send}`, send.repeat(4)],
          ms: 50,
        });
      }
      expect(await guest.do('resolve', { name: 'a.example', type: 'A', server: RESOLVER_ADDRESS })).toEqual([
        world.outside(0),
      ]);
    });
  });

  describe('reset', () => {
    it('resets all connections in both directions, of any process, and both sides get the reset', async () => {
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest();
      await guest.do('listen', { port: 8_080 });
      await guest.do('open', { host: world.outside(0), port: 80, send: 'out' });
      const inbound = await dialled(guest.guestAddress, 8_080);
      const mapped = await dialled(`::ffff:${guest.guestAddress}`, 8_080);
      const elsewhere = spawn(
        'bash',
        ['-c', `exec 3<>/dev/tcp/${guest.guestAddress}/8080; echo open; cat <&3`],
        {
          stdio: ['ignore', 'pipe', 'pipe'],
        },
      );
      await once(elsewhere.stdout, 'data');
      for (const socket of [inbound, mapped]) {
        socket.write('in');
        await once(socket, 'data');
      }
      const heard = [inbound, mapped].map(
        (socket) => new Promise((resolve) => socket.once('close', resolve)),
      );
      const ended = once(elsewhere, 'exit');

      expect(await world.network.reset(guest.netns)).toEqual([]);

      await Promise.all(heard);
      expect((await ended)[0]).not.toBe(0);
      await expect
        .poll(() => guest.do('ends', undefined as never), PATIENT)
        .toEqual(['reset', 'reset', 'reset', 'reset']);
    });

    it('refuses new connections until the release', async () => {
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest();
      await guest.do('listen', { port: 8_080 });
      const talk = () => guest.do('talk', { host: world.outside(0), port: 80, send: ['x'] });
      await world.network.reset(guest.netns);
      await expect(dialled(guest.guestAddress, 8_080)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
      expect(await talk()).toMatchObject({ isConnected: false, ended: 'ECONNREFUSED' });
      await world.network.release(guest.netns);
      (await dialled(guest.guestAddress, 8_080)).destroy();
      expect(await talk()).toMatchObject({ received: 'x' });
    });

    it('also ends connections that the host has forgotten and the sandbox still has', async () => {
      const guest = await world.guest();
      await guest.do('listen', { port: 8_080, isStubborn: true });
      const socket = await dialled(guest.guestAddress, 8_080);
      const router = `${world.tag}-router`;
      const silence = `table inet silence {
        chain resets {
          type filter hook prerouting priority raw
          iifname "uplink" tcp flags & rst == rst drop
        }
      }\n`;
      const left = () => runInNamespace(guest.netns, 'ss', ['-H', '-t', '-n', 'state', 'connected']);
      await runInNamespace(router, 'nft', ['-f', '-'], silence);
      socket.resetAndDestroy();
      await new Promise((resolve) => socket.once('close', resolve));
      await runInNamespace(router, 'nft', ['delete', 'table', 'inet', 'silence']);
      expect(await left()).toContain(':8080');

      expect(await world.network.reset(guest.netns)).toEqual([]);

      expect(await left()).toBe('');
    });
  });

  describe('after a restart of the server', () => {
    it('finds its instances again, allows them nothing at first, and then what their policies allow', async () => {
      await world.serve(world.outside(0), 80, echo);
      const guest = await world.guest();
      await guest.do('listen', { port: 8_080 });
      await guest.do('open', { host: world.outside(0), port: 80, send: 'before' });
      const talk = () => guest.do('talk', { host: world.outside(0), port: 80, send: ['x'] });
      await world.network.close();
      await expect.poll(() => guest.do('ends', undefined as never), PATIENT).toEqual(['reset']);
      // No server accepts the connection, and the guest gets a reset.
      expect(await talk()).toMatchObject({ received: '', ended: 'ECONNREFUSED' });

      const network = await world.reopen();

      expect(await network.list()).toEqual([guest.netns]);
      expect(await talk()).toMatchObject({ received: '', ended: 'ECONNRESET' });
      expect(world.refusals).toEqual([]);
      expect(await network.reopen(guest.netns, {})).toMatchObject({
        guestAddress: guest.guestAddress,
        slot: guest.slot,
      });
      expect(await talk()).toMatchObject({ received: 'x' });
      (await dialled(guest.guestAddress, 8_080)).destroy();
      expect(await network.reopen(world.nameOf(5), {})).toBeUndefined();
      expect((await network.attach(world.nameOf(6), {})).guestAddress).not.toBe(guest.guestAddress);
    });

    it('removes what a killed server with a deleted data directory left, and nothing of running servers', async () => {
      const left = await killedServer();
      const living = await world.guest();
      expect((await readdir('/run/netns')).filter((name) => name.startsWith(left.tag))).toHaveLength(2);
      await rm(left.dataDir, { recursive: true });
      await world.network.close();
      await world.reopen();
      expect((await readdir('/run/netns')).filter((name) => name.startsWith(left.tag))).toEqual([]);
      expect(await world.network.list()).toEqual([living.netns]);
    });

    it('takes over what a killed server with the same data directory left', async () => {
      const left = await killedServer();
      const network = await openSandboxNetwork({ owner: left, onRefusal: () => {} });
      expect(await network.list()).toEqual([`${left.tag}-sandbox0-1`]);
      await network.detach(`${left.tag}-sandbox0-1`);
      await network.close();
      await rm(left.dataDir, { recursive: true });
      expect((await readdir('/run/netns')).filter((name) => name.startsWith(left.tag))).toEqual([]);
    });
  });
});

/** Runs a server with one instance in another process and kills it. */
async function killedServer(): Promise<{ tag: string; dataDir: string }> {
  const dataDir = await mkdtemp(join(tmpdir(), 'torpor-network-'));
  const tag = Math.random().toString(16).slice(2, 8).padEnd(6, '0');
  const program = `
    const { openSandboxNetwork } = await import(${JSON.stringify(join(import.meta.dirname, 'open-network.ts'))});
    const network = await openSandboxNetwork({ owner: ${JSON.stringify({ tag, dataDir })}, onRefusal() {} });
    await network.attach('${tag}-sandbox0-1', {});
    console.log('ready');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  child.kill('SIGKILL');
  await once(child, 'exit');
  return { tag, dataDir };
}
