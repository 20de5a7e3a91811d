/**
 * Attacks from inside a sandbox on the host and on other sandboxes, as user and as root. Each title says what is
 * tried; none of it may succeed.
 */
import { randomBytes } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Instance, Refusal } from '@torpor/engine';
import { nextOf, paused, startFrom, unhurried } from '@torpor/engine/testing';
import {
  EGRESS_PORT,
  RESOLVER_ADDRESS,
  RESOLVER_PORT,
  runInNamespace,
  runSystemProgram,
  socketsInNamespace,
} from '@torpor/network';
import { lookUpIn, makeOutside, type OutsideServers, outsideServers } from '@torpor/network/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  CONNECTIONS,
  type ConnectionResult,
  DATAGRAMS,
  FORGED_PACKETS,
  LINKS_FOR_MOUNTS,
  PROCESS_ATTACKS,
  type Target,
} from '../testing/attack-programs.ts';
import { chosenRunsc } from '../testing/chosen-runsc.ts';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../testing/gvisor-world.ts';
import { type HostDecoys, placeDecoys } from '../testing/host-decoys.ts';
import { memoryWith } from '../testing/written-texts.ts';
import { allowsSetuid } from './binaries/releases.mjs';
import { AGENT_PORT } from './container/container-setup.ts';
import { serverTag } from './instance/instance-names.ts';
import { findMountNamespace } from './mounts/mount-namespace.ts';

const why = await whyNoGvisor();
const SLOW = 180_000;
const MARK = 'torpor-was-here';
/** Root can do everything that a user can, so usually only root is tried. `npm run test:gvisor` tries both. */
const ATTACKERS = (
  [
    ['root', 'sudo -n '],
    ['user', ''],
  ] as const
).slice(0, process.env['TORPOR_CYCLES'] === undefined ? 1 : 2);

/** A value that the egress puts into requests of one sandbox. */
const USED_SECRET = {
  name: 'API_KEY',
  host: 'api.example',
  header: 'Authorization',
  methods: null,
  path: null,
  content: `Bearer ${randomBytes(16).toString('hex')}`,
};

describe.skipIf(why !== null)('from inside a sandbox', { timeout: SLOW }, () => {
  const names: Parameters<typeof lookUpIn>[0] = new Map();
  let outside: Awaited<ReturnType<typeof makeOutside>>;
  const plainServers: Server[] = [];
  let servers: OutsideServers;
  let world: GvisorWorld;
  let decoys: HostDecoys;
  let attacker: Instance;
  let neighbour: Instance;
  let node: string;
  const secretOfTheServer = randomBytes(16).toString('hex');

  beforeAll(async () => {
    process.env['TORPOR_TEST_SECRET'] = secretOfTheServer;
    outside = await makeOutside(randomBytes(3).toString('hex'));
    servers = await outsideServers(outside);
    world = await makeGvisorWorld({
      network: {
        lookUp: lookUpIn(names),
        openNetworks: [outside.network],
        serverAuthorities: [servers.authority],
      },
      secrets: { find: async () => [USED_SECRET] },
    });
    decoys = await placeDecoys(world.dataDir);
    [attacker, neighbour] = [await world.started(), await world.started()];
    node = await world.node();
    for (const port of [80, 443]) await serveOutside(port);
    await world.run(neighbour, `echo ${decoys.secret} > $HOME/private`);
    await world.start(
      neighbour,
      `require('http').createServer((_, a) => a.end('${decoys.secret}')).listen(8080, () => console.log('up'))`,
    );
    expect(await world.get(neighbour, 8_080)).toBe(decoys.secret);
    const files = (await world.agent(attacker)).files;
    for (const [name, text] of Object.entries({ CONNECTIONS, DATAGRAMS, FORGED_PACKETS, PROCESS_ATTACKS }))
      await files.write(`/tmp/${name}`, text);
    names.set('host.example', [hostAddress()]).set('loop.example', ['127.0.0.1']);
    names.set('private.example', ['10.0.0.1']).set('metadata.example', ['169.254.169.254']);
    names.set('good.example', [outside.address(0)]);
  }, SLOW);

  afterAll(async () => {
    delete process.env['TORPOR_TEST_SECRET'];
    for (const server of plainServers) server.close();
    await servers?.close();
    // One of the sockets lies in the root of a sandbox.
    await decoys?.remove();
    await outside?.remove();
    await world?.dispose();
    await world?.close();
  }, SLOW);

  afterEach(async () => {
    expect(decoys.reached()).toEqual([]);
    await decoys.expectUntouched();
  });

  async function serveOutside(port: number): Promise<void> {
    const wanted = [{ kind: 'tcp', host: outside.address(0), port }] as const;
    const { sockets, conntrack } = await socketsInNamespace(outside.netns, wanted);
    await conntrack?.close();
    for (const server of sockets) {
      if (!(server instanceof Server)) continue;
      plainServers.push(server);
      server.on('connection', (socket) =>
        socket.on('error', () => {}).once('data', () => socket.end('outside')),
      );
    }
  }

  const own = () => Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
  const hostAddress = () =>
    own().find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? '';
  /** Runs `work` on a mounted root, which is visible only in the mount namespace of the sandboxes. */
  const withMounted = async (rootfs: string, work: (root: string) => Promise<void>) => {
    const namespace = await findMountNamespace(join('/run/torpor', serverTag(world.dataDir)), unhurried);
    if (namespace === undefined) throw new Error('There is no mount namespace.');
    try {
      await work(namespace.hostPath(rootfs));
    } finally {
      namespace.leave();
    }
  };
  /** The MAC address of the router's interface towards the sandbox. */
  const routerMac = async (instance: Instance) => {
    const { guestAddress } = world.recordOf(instance);
    const netns = `${serverTag(world.dataDir)}-router`;
    const [route] = JSON.parse(await runInNamespace(netns, 'ip', ['-j', 'route', 'get', guestAddress])) as [
      { dev: string },
    ];
    const [link] = JSON.parse(await runInNamespace(netns, 'ip', ['-j', 'link', 'show', route.dev])) as [
      { address: string },
    ];
    return link.address;
  };
  /** The addresses of the host, and of the router between the host and its sandboxes. */
  const hostAddresses = async (family: 'IPv4' | 'IPv6') => {
    const listing = await runInNamespace(`${serverTag(world.dataDir)}-router`, 'ip', ['-j', 'addr']);
    const router = (JSON.parse(listing) as { addr_info: { local: string }[] }[]).flatMap(({ addr_info }) =>
      addr_info.map(({ local }) => local),
    );
    const all = [...own().map(({ address }) => address), ...router];
    return [...new Set(all)].filter((address) => address.includes(':') === (family === 'IPv6'));
  };

  describe.each(ATTACKERS)('as %s', (who, sudo) => {
    let count = 0;
    /** Runs a script and returns its output and errors. The script is a file, so that nothing must be quoted. */
    async function attempt(script: string, instance = attacker): Promise<string> {
      const path = `/tmp/attempt-${who}-${count++}`;
      await (await world.agent(instance)).files.write(path, `exec 2>&1\n${script}\n`);
      return (await world.run(instance, `${sudo}sh ${path}`)).output;
    }
    async function program<T>(name: string, targets: readonly unknown[], instance = attacker): Promise<T> {
      const path = `/tmp/targets-${who}-${count++}`;
      await (await world.agent(instance)).files.write(path, JSON.stringify(targets));
      return JSON.parse(await attempt(`${node} /tmp/${name} ${path}`, instance)) as T;
    }
    const talks = (targets: readonly Target[], instance?: Instance) =>
      program<ConnectionResult[]>('CONNECTIONS', targets, instance);
    /** Expects that nothing was received and that each connection failed at once, not by a timeout. */
    async function expectRefused(targets: readonly Target[], instance?: Instance): Promise<void> {
      const all = await talks(targets, instance);
      expect(all).toHaveLength(targets.length);
      for (const [index, talk] of all.entries()) {
        const { host, port, send } = targets[index] as Target;
        expect(talk, `${host}:${port} ${send ?? ''}`).toEqual({
          received: '',
          ended: expect.stringMatching(/^(ECONN|EHOST|ENET|EADDR|ENOTFOUND|EAI|EACCES|EPERM|EINVAL|end$)/),
        });
      }
    }

    it('has the expected user, and can reach the outside: the attacks below fail because they are refused', async () => {
      expect((await attempt('id -un')).trim()).toBe(who);
      const [talk] = await talks([{ host: 'good.example', port: 80 }]);
      expect(talk).toEqual({ received: 'outside', ended: 'end' });
    });

    it('can use a secret, which is neither in its environment nor in its memory', async () => {
      const got: unknown[] = [];
      names.set(USED_SECRET.host, [outside.address(3)]);
      await servers.serve(USED_SECRET.host, 3, 'https', ({ headers }, response) => {
        got.push(headers.authorization);
        response.end('used');
      });
      const user = await world.started({ network: { secrets: [USED_SECRET.name] } });
      expect(await attempt('curl -sS https://api.example/', user)).toBe('used');
      expect(got).toEqual([USED_SECRET.content]);
      expect(await attempt('cat /proc/*/environ | tr "\\0" "\\n"', user)).toContain(
        'NODE_EXTRA_CA_CERTS=/etc/ssl',
      );
      const sealed = await paused(world, user, 'memory');
      expect(await memoryWith('NODE_EXTRA_CA_CERTS', sealed)).not.toEqual([]);
      expect(await memoryWith(USED_SECRET.content, sealed)).toEqual([]);
      await servers.close();
    });

    describe('over the network', () => {
      it("cannot reach the server's ports, its database or the ports of the egress proxy on any address of the host", async () => {
        const { everywhere, loopback, database } = decoys.ports;
        const ports = [everywhere, loopback, database, EGRESS_PORT, RESOLVER_PORT, 22];
        const addresses = await hostAddresses('IPv4');
        expect(addresses).toContain(hostAddress());
        // The default gateway of the sandbox is one of them.
        expect(addresses).toContain((await attempt('ip route')).match(/default via (\S+)/)?.[1]);
        await expectRefused(addresses.flatMap((host) => ports.map((port) => ({ host, port }))));
      });

      it('reaches only its own loopback, not that of the host', async () => {
        const { everywhere, loopback } = decoys.ports;
        const hosts = ['127.0.0.1', 'localhost', '0.0.0.0', '127.1.2.3'];
        await expectRefused(hosts.flatMap((host) => [everywhere, loopback].map((port) => ({ host, port }))));
      });

      it('cannot route its loopback to the host', async () => {
        await attempt(`ip route add 127.0.0.1/32 via ${hostAddress()}; ip addr del 127.0.0.1/8 dev lo
          ip link set eth0 address 02:00:00:00:00:01; ip addr add ${hostAddress()}/32 dev eth0
          unshare -Urn sh -c 'ip link set lo up'`);
        await expectRefused([{ host: '127.0.0.1', port: decoys.ports.loopback }]);
      });

      it('cannot reach the host through the egress proxy by Host, request line or tunnel', async () => {
        const at = `${hostAddress()}:${decoys.ports.everywhere}`;
        const sends = [
          `GET / HTTP/1.1\r\nHost: ${at}\r\n\r\n`,
          'GET / HTTP/1.1\r\nHost: host.example\r\n\r\n',
          `GET http://${at}/ HTTP/1.1\r\nHost: good.example\r\n\r\n`,
          `CONNECT ${at} HTTP/1.1\r\nHost: ${at}\r\n\r\n`,
          `PROXY TCP4 192.0.2.1 ${hostAddress()} 4444 ${decoys.ports.everywhere}\r\nGET / HTTP/1.0\r\n\r\n`,
        ];
        const all = await talks(sends.map((send) => ({ host: outside.address(0), port: 80, send })));
        for (const { received } of all) expect(received).not.toContain(decoys.secret);
      });

      it('cannot reach the host through the egress proxy by the server name in TLS', async () => {
        const tls = ['host.example', 'loop.example'];
        const all = await talks(tls.map((name) => ({ host: outside.address(0), port: 443, tls: name })));
        for (const { received } of all) expect(received).not.toContain(decoys.secret);
      });

      it('cannot reach the host, a private network or the metadata address by a name that resolves to them', async () => {
        const hosts = ['host.example', 'loop.example', 'private.example', 'metadata.example'];
        expect((await attempt(`for n in ${hosts.join(' ')}; do getent hosts $n; done`)).trim()).toBe('');
        await expectRefused(hosts.map((host) => ({ host, port: decoys.ports.everywhere })));
      });

      it('cannot reach the metadata address of a cloud, private networks or reserved addresses', async () => {
        const hosts = ['169.254.169.254', '10.0.0.1', '172.16.0.1', '192.168.0.1', '192.0.2.1'];
        await expectRefused(hosts.map((host) => ({ host, port: 80 })));
      });

      it('cannot reach another sandbox, neither its agent nor its services', async () => {
        const { guestAddress: host } = world.recordOf(neighbour);
        await expectRefused([AGENT_PORT, 8_080].map((port) => ({ host, port })));
      });

      it('cannot use its own agent without the token', async () => {
        const send = 'GET /envs HTTP/1.0\r\n\r\n';
        const { guestAddress } = world.recordOf(attacker);
        const hosts = ['127.0.0.1', guestAddress];
        for (const { received } of await talks(hosts.map((host) => ({ host, port: AGENT_PORT, send }))))
          expect(received).toMatch(/^HTTP\/1\.1 401 /);
      });

      it('cannot send a datagram to the host, another sandbox or the outside', async () => {
        const { guestAddress } = world.recordOf(neighbour);
        const hosts = [...(await hostAddresses('IPv4')), guestAddress, outside.address(0)].filter(
          (host) => host !== '127.0.0.1',
        );
        const targets = hosts.flatMap((host) => [decoys.udpPort, 53].map((port) => ({ host, port })));
        const elsewhere = [{ host: RESOLVER_ADDRESS, port: decoys.udpPort }];
        for (const how of await program<string[]>('DATAGRAMS', [...targets, ...elsewhere]))
          expect(how).not.toBe('answered');
      });

      it('cannot use IPv6', async () => {
        const hosts = [...(await hostAddresses('IPv6')), 'fe80::1%eth0', '2001:db8::1'];
        const targets = hosts
          .filter((host) => host !== '::1')
          .map((host) => ({ host, port: decoys.ports.everywhere }));
        await expectRefused(targets);
        await expectRefused([{ host: '::1', port: decoys.ports.everywhere }]);
        for (const how of await program<string[]>('DATAGRAMS', targets)) expect(how).not.toBe('answered');
      });

      it('cannot read or forge packets, not even in a user namespace', async () => {
        const { guestAddress } = world.recordOf(neighbour);
        const senders = ['127.0.0.1', guestAddress, hostAddress(), '192.0.2.7', '0.0.0.0'];
        const router = await routerMac(attacker);
        const line = (target: string) =>
          `perl /tmp/FORGED_PACKETS ${target} ${decoys.udpPort} ${decoys.ports.everywhere} ${router} ${senders.join(' ')}`;
        const refused = 'raw socket: Operation not permitted\nframes: Operation not permitted\n';
        expect(await attempt(line(hostAddress()))).toBe(refused);
        for (const target of [hostAddress(), guestAddress]) {
          expect(await attempt(`unshare -Ur ${line(target)}`)).toBe(refused);
        }
        // When this connection has ended, the packets sent before it have been processed.
        expect(await talks([{ host: 'good.example', port: 80 }])).toEqual([
          { received: 'outside', ended: 'end' },
        ]);
      });

      it('cannot connect to Unix sockets of the host, by path, by abstract name or in its own root', async () => {
        const { rootfs } = world.recordOf(attacker);
        const planted = `/tmp/planted-${who}`;
        await withMounted(rootfs, (root) => decoys.plant(join(root, planted)));
        const paths = [decoys.socketPath, `\\0${decoys.abstractSocket}`, planted];
        const said = await attempt(
          paths
            .map(
              (path) =>
                `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); print connect(S, pack_sockaddr_un("${path}")) ? "in: " . <S> : "$!", "\\n"'`,
            )
            .join('\n'),
        );
        expect(said.trim().split('\n')).toHaveLength(3);
        expect(said).not.toContain('in:');
        expect(await attempt(`perl -e 'print socket(S, 40, 1, 0) ? "in" : "$!"'`)).toContain('not supported');
      });
    });

    describe('by the kernel', () => {
      it('has no devices of the host, and cannot create any', async () => {
        const { dev } = await stat('/');
        const disk = `${Math.floor(dev / 256)} ${dev % 256}`;
        const devices = [
          '/dev/mem',
          '/dev/kmsg',
          '/dev/port',
          '/dev/kvm',
          '/dev/sda',
          '/dev/vda',
          '/dev/net/tun',
        ];
        const made = [`b ${disk}`, 'b 8 0', 'c 1 1', 'c 1 11', 'c 10 232', 'c 10 200'];
        const said =
          await attempt(`cd /tmp; for d in ${devices.join(' ')}; do head -c 1 $d >/dev/null && echo read $d; done
          make() { mknod node-${who} "$@" && head -c 1 node-${who} >/dev/null && echo read "$@"; rm -f node-${who}; }
          ${made.map((one) => `make ${one}`).join('\n')}
          cp /bin/sh shell-${who}
          unshare -Ur sh -c 'mknod node b ${disk} && head -c 1 node >/dev/null && echo read in a namespace'`);
        expect(said).not.toMatch(/^read/m);
        const { rootfs } = world.recordOf(attacker);
        await withMounted(rootfs, async (root) => {
          await expect(stat(join(root, '/tmp'))).resolves.toBeDefined();
          await expect(stat(join(root, `/tmp/node-${who}`))).rejects.toThrow('ENOENT');
        });
      });

      it('cannot mount a disk or a directory of the host', async () => {
        const { dev } = await stat('/');
        const said = await attempt(`cd /tmp; mkdir -p m-${who}
          mknod d-${who} b ${Math.floor(dev / 256)} ${dev % 256}
          for t in ext4 xfs btrfs vfat; do
            for d in /dev/vda /dev/sda1 d-${who}; do mount -t $t $d m-${who} && echo mounted $t $d; done
          done
          mount -t 9p -o trans=fd,rfdno=5,wfdno=5,aname=/ none m-${who} && echo mounted 9p
          mount --bind ${world.dataDir} m-${who} && echo mounted data
          mount -t devtmpfs none m-${who} && ls m-${who}/vda m-${who}/sda m-${who}/mem && echo mounted devices
          umount m-${who}; true`);
        expect(said).not.toMatch(/^mounted/m);
      });

      it('cannot read or change the host through /proc and /sys', async () => {
        const patterns = ['core_pattern', 'modprobe', 'hotplug'].map((name) => `/proc/sys/kernel/${name}`);
        const before = await Promise.all(patterns.map((path) => readFile(path, 'utf8').catch(() => '')));
        const said =
          await attempt(`for f in ${patterns.join(' ')} /sys/kernel/uevent_helper; do echo '|/tmp/${MARK}' > $f; done
          echo h > /proc/sysrq-trigger; head -c 1 /proc/kcore >/dev/null && echo read memory
          mkdir -p /tmp/c-${who} && mount -t sysfs none /tmp/c-${who} && ls /tmp/c-${who}/block | grep . && echo read disks
          umount /tmp/c-${who}; mount -t cgroup -o pids none /tmp/c-${who} && ls /tmp/c-${who}/release_agent && echo found an agent
          umount /tmp/c-${who}
          ls /proc/1/root${world.dataDir} /proc/self/root/../..${world.dataDir} && echo read data
          cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'
          hostname ${MARK}; true`);
        expect(said).not.toMatch(/^(read|found)/m);
        for (const word of ['runsc', secretOfTheServer]) expect(said).not.toContain(word);
        expect(await Promise.all(patterns.map((path) => readFile(path, 'utf8').catch(() => '')))).toEqual(
          before,
        );
        expect(await readFile('/proc/sys/kernel/hostname', 'utf8')).not.toContain(MARK);
      });

      it('cannot use system calls that affect the host', async () => {
        // init_module, kexec_load, iopl, ioperm, open_by_handle_at, bpf, perf_event_open, reboot, settimeofday.
        const calls = [175, 246, 172, 173, 304, 321, 298, 169, 164];
        const said = await attempt(
          `perl -e 'for (${calls.join(', ')}) { my $r = syscall($_, 0, 0, 0, 0, 0); print "$_: ", $r == -1 ? "refused" : "done $r", "\\n" }'`,
        );
        // settimeofday without a time is allowed to every process.
        const expected = calls.map((call) => (call === 164 ? expect.any(String) : `${call}: refused`));
        expect(said.trim().split('\n')).toEqual(expected);
      });
    });

    describe('by files', () => {
      it('cannot read files of the host or of another sandbox by leaving its root', async () => {
        const { rootfs } = world.recordOf(neighbour);
        const paths = [...decoys.files, join(decoys.directory, 'victim'), join(rootfs, 'home/user/private')];
        const said = await attempt(`for f in ${paths.join(' ')}; do
            cat $f /proc/1/root$f /proc/self/cwd/../../../../..$f
          done
          ls ${world.dataDir} ${process.cwd()}
          mkdir -p /tmp/jail-${who}
          perl -e 'chroot "/tmp/jail-${who}"; chdir ".." for 1..50; chroot "."; for (@ARGV) { open F, "<", $_ and print <F> }' ${paths.join(' ')}
          unshare -Urm sh -c 'for f in ${paths.join(' ')}; do cat $f; done'
          ln -s / /tmp/up-${who}; for f in ${paths.join(' ')}; do cat /tmp/up-${who}$f; done`);
        expect(said).not.toContain(decoys.secret);
        expect(said.match(/No such file/g)?.length).toBeGreaterThan(paths.length);
      });

      it("cannot read the host's passwords or keys", async () => {
        const shadow = await readFile('/etc/shadow', 'utf8').catch(() => '');
        const hashes = shadow.split('\n').flatMap((line) => line.split(':')[1]?.match(/^\$.+/) ?? []);
        const said = await attempt(
          'cat /etc/shadow /etc/shadow- /etc/gshadow; ls /etc/ssh /root/.ssh; cat /etc/machine-id',
        );
        for (const [hash] of hashes) expect(said).not.toContain(hash);
        expect(said).not.toMatch(/ssh_host_|authorized_keys|^[^:]+:\$/m);
        const identity = await readFile('/etc/machine-id', 'utf8').catch(() => '-');
        expect(said).not.toContain(identity.trim() || '-');
      });

      it.each([
        ['directly', ''],
        ['after a remount', 'for m in /usr /.torpor /etc/alternatives; do mount -o remount,rw $m; done'],
        [
          'through a second mount',
          'mkdir -p /tmp/again; mount --bind /usr /tmp/again; mount -o remount,rw /tmp/again; touch /tmp/again/MARK',
        ],
        [
          'after a remount in a user namespace',
          'unshare -Urm sh -c "mount -o remount,rw /usr; touch /usr/MARK; mount -o remount,rw /.torpor; touch /.torpor/MARK"',
        ],
        [
          'through an overlay',
          'unshare -Urm sh -c "mount -t overlay -o lowerdir=/usr,upperdir=/usr/local,workdir=/usr/share none /usr; touch /usr/MARK"',
        ],
      ])('cannot write to directories that it shares with other sandboxes: %s', async (_, first) => {
        await attempt(`${first.replaceAll('MARK', MARK)}
          touch /usr/${MARK} /.torpor/${MARK} /.torpor/agent/${MARK} /etc/alternatives/${MARK}
          ln -s /tmp /usr/bin/${MARK}; mkdir /usr/lib/${MARK}; echo '//' >> /.torpor/agent/agent.mjs`);
        const found = `ls -d /usr/${MARK} /usr/local/${MARK} /.torpor/${MARK} /.torpor/agent/${MARK} /etc/alternatives/${MARK}`;
        expect(await attempt(found, neighbour)).not.toMatch(new RegExp(`^/.*${MARK}$`, 'm'));
        for (const place of ['/usr', '/usr/bin', '/usr/lib', '/usr/local', '/etc/alternatives'])
          await expect(stat(join(place, MARK)), place).rejects.toThrow('ENOENT');
        // The attacking sandbox still works too.
        expect((await world.run(attacker, '/usr/bin/env echo fine')).output).toBe('fine\n');
      });
    });
  });

  describe('as user', () => {
    const output = async (command: string) => (await world.run(attacker, command)).output;

    it('cannot read the memory of the agent or of its file worker, nor trace them', async () => {
      const pids = (await output('pgrep -f [a]gent.mjs')).trim().split('\n');
      expect(pids.length).toBeGreaterThan(1);
      const refused = (line: string) => /: (Operation not permitted|Permission denied)$/.test(line);
      for (const before of ['', 'unshare -Ur ']) {
        const said = await output(`${before}perl /tmp/PROCESS_ATTACKS ${pids.join(' ')}`);
        const lines = said.trim().split('\n');
        expect(lines).toHaveLength(5 * pids.length);
        expect(lines.filter((line) => !refused(line))).toEqual([]);
      }
    });

    describe('with set-user-ID programs', () => {
      const EFFECTIVE_USER = `-c 'import os; print(os.getresuid()[1])'`;
      const makeSetuid = (instance: Instance) =>
        world.run(instance, 'cp /usr/bin/python3 /home/user/setuid && chmod 4755 /home/user/setuid', 'root');
      let isAllowed: boolean;
      beforeAll(async () => {
        isAllowed = allowsSetuid((await chosenRunsc())?.version.releaseDate ?? null);
        await makeSetuid(attacker);
      });

      it('becomes root by a program that root made, where runsc allows that, also after a sleep', async () => {
        const expected = isAllowed ? '0\n' : '1000\n';
        const instance = await world.started();
        await makeSetuid(instance);
        expect((await world.run(instance, `/home/user/setuid ${EFFECTIVE_USER}`)).output).toBe(expected);
        const checkpoint = await paused(world, instance, 'memory');
        const next = nextOf(instance);
        await startFrom(world, next, checkpoint, 'memory');
        expect((await world.run(next, `/home/user/setuid ${EFFECTIVE_USER}`)).output).toBe(expected);
      });

      it("cannot become root by the host's programs, which are mounted without set-user-ID", async () => {
        expect((await stat('/usr/bin/su')).mode & 0o4000).toBe(0o4000);
        expect(await output('LD_SHOW_AUXV=1 /usr/bin/su --version')).toMatch(/^AT_SECURE: +0$/m);
      });

      it('cannot make the loader of such a program load or show anything', async () => {
        const said = await output('LD_SHOW_AUXV=1 /home/user/setuid -c "print(1)"');
        if (isAllowed) expect(said).toBe('1\n');
        else expect(said).toMatch(/^AT_SECURE: +0$/m);
      });

      it('cannot become root by tracing such a program from its start', async () => {
        const traced = `import ctypes, os
libc = ctypes.CDLL(None)
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, 0, 0)
    os.execv('/home/user/setuid', ['setuid', '-c', 'import os; print(os.getresuid()[1], flush=True)'])
os.waitpid(pid, 0)
libc.ptrace(7, pid, 0, 0)
os.waitpid(pid, 0)`;
        await (await world.agent(attacker)).files.write('/tmp/traced.py', traced);
        expect(await output('python3 /tmp/traced.py')).toBe('1000\n');
      });

      it('cannot trace, read or write such a program while it runs', async () => {
        const said = await output(
          '/home/user/setuid -c "import os, time; os.setuid(0); time.sleep(5)" 2>/dev/null & sleep 1; perl /tmp/PROCESS_ATTACKS $!',
        );
        const lines = said.trim().split('\n');
        expect(lines).toHaveLength(5);
        if (isAllowed) {
          expect(
            lines.filter((line) => !/: (Operation not permitted|Permission denied)$/.test(line)),
          ).toEqual([]);
        }
      });

      it('cannot become root by a program that root of a user namespace made', async () => {
        await output(
          'unshare -Ur sh -c "cp /usr/bin/python3 /home/user/mine; chown 0:0 /home/user/mine; chmod 6755 /home/user/mine"',
        );
        expect(await output(`/home/user/mine ${EFFECTIVE_USER}`)).toBe('1000\n');
        const mounted = `unshare -Urm sh -c "mount -t tmpfs x /mnt && cp /usr/bin/python3 /mnt/s && chmod 6755 /mnt/s && exec sleep 3" &
          sleep 1; /proc/$!/root/mnt/s ${EFFECTIVE_USER}`;
        expect(await output(mounted)).toBe('1000\n');
      });

      it('cannot change such a program and keep its right', async () => {
        await world.run(attacker, 'cp /bin/true /home/user/writable; chmod 4777 /home/user/writable', 'root');
        expect(await output('stat -c %a /home/user/writable')).toBe('4777\n');
        await output('cat /usr/bin/id > /home/user/writable');
        expect(await output('stat -c %a /home/user/writable; /home/user/writable -u')).toBe('777\n1000\n');
      });
    });

    it("cannot find the agent's token or credential", async () => {
      const { token, credential } = world.recordOf(attacker);
      const found = await output(`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /.torpor-credential 2>&1
        perl -MFcntl -e 'for (glob "/proc/[0-9]*/fd/*") { sysopen(my $h, $_, O_RDONLY | O_NONBLOCK) and sysread($h, my $x, 4096) and print $x }'
        cat /.torpor/run/* /.torpor/run/*/* /var/lib/torpor/* /run/* 2>/dev/null; true`);
      expect(found).not.toContain(token);
      expect(found).not.toContain(credential);
      expect(await output('ls -a /')).not.toContain('.torpor-credential');
    });

    it('cannot use the sudo socket of another user', async () => {
      const said = await output(
        `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); print connect(S, pack_sockaddr_un("/.torpor/run/sudo/0.sock")) ? "in" : "$!"'`,
      );
      expect(said).toBe('Permission denied');
    });
  });

  describe('by files that it leaves for its next start', () => {
    it('cannot make the server or runsc write to files of the host by links', async () => {
      const instance = await world.started();
      const { directory } = decoys;
      const script = `cd / && rm -f etc/resolv.conf etc/hosts etc/hostname
        for f in .torpor-credential etc/resolv.conf etc/resolv.conf.torpor etc/hosts etc/hosts.torpor etc/hostname; do
          ln -s ${directory}/victim $f
        done; readlink .torpor-credential etc/hosts`;
      const { output } = await world.run(instance, script, 'root');
      expect(output).toBe(`${directory}/victim\n${directory}/victim\n`);
      const checkpoint = await paused(world, instance, 'files');
      const next = nextOf(instance);
      await startFrom(world, next, checkpoint, 'files');
      const { guestAddress } = world.recordOf(next);
      const { output: said } = await world.run(
        next,
        'cat /etc/resolv.conf /etc/hosts; ls -ld /.torpor-credential',
      );
      expect(said).toContain(`nameserver ${RESOLVER_ADDRESS}\n`);
      expect(said).toContain(guestAddress);
      expect(said).toContain("cannot access '/.torpor-credential'");
    });

    it('cannot make the server empty a directory of the host by a link in place of the credential', async () => {
      const instance = await world.started();
      const script = `mkdir -p /.torpor-credential/deep && ln -s ${decoys.directory} /.torpor-credential/deep/link && mkdir /.torpor-credential/locked && chmod 0 /.torpor-credential/locked`;
      expect((await world.run(instance, script, 'root')).exitCode).toBe(0);
      const checkpoint = await paused(world, instance, 'files');
      await startFrom(world, nextOf(instance), checkpoint, 'files');
    });

    it('cannot make the server mount or create anything in a directory of the host by links in place of mount points', async () => {
      const instance = await world.started();
      await (await world.agent(instance)).files.write('/tmp/LINKS_FOR_MOUNTS', LINKS_FOR_MOUNTS);
      const { output } = await world.run(instance, `perl /tmp/LINKS_FOR_MOUNTS ${decoys.directory}`, 'root');
      const places = ['/proc', '/sys', '/dev', '/.torpor', '/usr'];
      expect(output).toBe(places.map((place) => `${place} -> ${decoys.directory}${place}\n`).join(''));
      const checkpoint = await paused(world, instance, 'files');
      const next = nextOf(instance);
      // The start may fail or succeed.
      await startFrom(world, next, checkpoint, 'files').catch(() => {});
      await world.runtime.destroy(next, unhurried);
    });
  });

  it('has a network policy that applies at once, reports refusals, and counts bytes (R104)', async () => {
    const told: [Instance, Refusal][] = [];
    world.runtime.onRefusal?.((instance, refusal) => told.push([instance, refusal]));
    const call = `require('net').connect(80, 'good.example', function () { this.write('x'); })
      .on('data', (said) => console.log(String(said))).on('error', ({ code }) => console.log(code))`;
    const said = async () => (await world.run(neighbour, `${node} -e "${call}"`)).output.trim();
    world.runtime.takeEgress?.();
    expect(await said()).toBe('outside');
    const bytes = { instance: neighbour, sent: 1, received: 'outside'.length };
    expect(world.runtime.takeEgress?.()).toContainEqual(bytes);
    await world.runtime.setNetwork(neighbour, { deny: ['good.example'] }, unhurried);
    expect(await said()).toMatch(/^(EAI_AGAIN|ENOTFOUND)$/);
    const refused = { destination: 'good.example', reason: 'denied', rule: 'good.example', via: 'dns' };
    await expect.poll(() => told).toContainEqual([neighbour, expect.objectContaining(refused)]);
    const checkpoint = await paused(world, neighbour, 'memory');
    neighbour = nextOf(neighbour);
    await startFrom(world, neighbour, checkpoint, 'memory');
    await world.runtime.setNetwork(neighbour, {}, unhurried);
    expect(await said()).toBe('outside');
  });

  it('leaves other sandboxes running', async () => {
    expect(await world.get(neighbour, 8_080)).toBe(decoys.secret);
    expect((await world.runtime.observe(attacker, unhurried)).is).toBe('running');
    await runSystemProgram('ip', ['link', 'show']);
  });
});
