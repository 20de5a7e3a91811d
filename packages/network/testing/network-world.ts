/**
 * A whole network for tests: the network of a server, guests, and an "internet" of documentation addresses in a namespace
 * beside the host. `dispose` fails when anything is left in the kernel.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { access, mkdtemp, readdir, readlink, rm } from 'node:fs/promises';
import { Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Network } from '@torpor/protocol';
import type { AddressRecord, Found, LookUp } from '../src/look-up.ts';
import { socketsInNamespace } from '../src/namespace-sockets.ts';
import { CLAIMS_DIRECTORY, openSandboxNetwork, type SandboxNetworkOptions } from '../src/open-network.ts';
import type { Refusal } from '../src/refusals.ts';
import type { Attachment, SandboxNetwork } from '../src/sandbox-network.ts';
import { runSystemProgram } from '../src/system-program.ts';
import type { ACTIONS, Action } from './guest-program.ts';

/** Whether these tests cannot run on this machine. Prints the reason. */
export async function isWithoutNetwork(): Promise<boolean> {
  const why = await whyNoNetwork();
  if (why !== undefined) process.stderr.write(`skipped: tests of the network (${why})\n`);
  return why !== undefined;
}

async function whyNoNetwork(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'networks of sandboxes need root';
  for (const program of ['nft', 'ip', 'ss', 'nsenter']) {
    const places = ['/usr/sbin', '/usr/bin', '/sbin', '/bin'].map((directory) => join(directory, program));
    const found = await Promise.all(
      places.map((place) =>
        access(place).then(
          () => true,
          () => false,
        ),
      ),
    );
    if (!found.includes(true)) return `${program} is not installed`;
  }
  return undefined;
}

export interface Guest extends Attachment {
  do<A extends Action>(
    action: A,
    options: Parameters<(typeof ACTIONS)[A]>[0],
  ): ReturnType<(typeof ACTIONS)[A]>;
  /** Ends the guest program, like the end of a sandbox. */
  stop(): Promise<void>;
}

export interface NetworkWorld {
  readonly network: SandboxNetwork;
  readonly tag: string;
  readonly dataDir: string;
  readonly refusals: Refusal[];
  /** The addresses of names. A function is called for every lookup. */
  readonly names: Map<string, readonly string[] | (() => readonly string[])>;
  /** An address of the test internet, from `outside(0)` to `outside(11)`. */
  outside(index: number): string;
  outsideNetwork: string;
  serve(address: string, port: number, onSocket: (socket: Socket) => void): Promise<Server>;
  guest(network?: Network): Promise<Guest>;
  nameOf(index: number): string;
  reopen(): Promise<SandboxNetwork>;
  /** Removes guests, servers, names and refusals before the next test. */
  clear(): Promise<void>;
  dispose(): Promise<void>;
}

const HOSTS = 12;

export async function makeNetworkWorld(options: Partial<SandboxNetworkOptions> = {}): Promise<NetworkWorld> {
  const tag = randomBytes(3).toString('hex');
  const dataDir = await mkdtemp(join(tmpdir(), 'torpor-network-'));
  const outside = await makeOutside(tag);
  const refusals: Refusal[] = [];
  const names: NetworkWorld['names'] = new Map();
  const open = () =>
    openSandboxNetwork({
      owner: { tag, dataDir },
      onRefusal: (refusal) => refusals.push(refusal),
      openNetworks: [outside.network],
      lookUp: lookUpIn(names),
      ...options,
    });
  const servers: Server[] = [];
  const guests: Guest[] = [];
  const world = {
    network: await open(),
    tag,
    dataDir,
    refusals,
    names,
    outside: outside.address,
    outsideNetwork: outside.network,
    nameOf: (index: number) => `${tag}-sandbox${index}-1`,
    async serve(address: string, port: number, onSocket: (socket: Socket) => void) {
      const { sockets, conntrack } = await socketsInNamespace(outside.netns, [
        { kind: 'tcp', host: address, port },
      ]);
      await conntrack?.close();
      const [server] = sockets;
      if (!(server instanceof Server)) throw new Error('not a server');
      servers.push(server);
      return server.on('connection', (socket) => {
        socket.on('error', () => {});
        onSocket(socket);
      });
    },
    async guest(network: Network = {}) {
      const attachment = await world.network.attach(world.nameOf(guests.length), network);
      const guest = startGuest(attachment);
      guests.push(guest);
      return guest;
    },
    async reopen() {
      world.network = await open();
      return world.network;
    },
    async clear() {
      await Promise.all(guests.splice(0).map((guest) => guest.stop()));
      await Promise.all((await world.network.list()).map((name) => world.network.detach(name)));
      for (const server of servers.splice(0)) server.close();
      names.clear();
      refusals.splice(0);
    },
    async dispose() {
      await world.clear();
      await world.network.close();
      await outside.remove();
      await rm(dataDir, { recursive: true, force: true });
      await expectNothingLeft(tag);
    },
  };
  return world;
}

/** Adding the route claims the prefix: the kernel refuses a second one. */
export async function makeOutside(tag: string) {
  const netns = `tw-${tag}`;
  const link = `tw${tag}`;
  await runSystemProgram(
    'ip',
    ['-batch', '-'],
    `netns add ${netns}\nlink add ${link} type veth peer name eth0 netns ${netns}\n`,
  );
  await runSystemProgram('ip', ['link', 'set', link, 'up']);
  for (const first of Array.from({ length: 16 }, (_, index) => index * 16)) {
    const address = (offset: number) => `203.0.113.${first + offset}`;
    const network = `${address(0)}/28`;
    await runSystemProgram('ip', ['addr', 'add', `${address(1)}/32`, 'dev', link]);
    const isOurs = await runSystemProgram('ip', [
      'route',
      'add',
      network,
      'dev',
      link,
      'src',
      address(1),
    ]).then(
      () => true,
      () => false,
    );
    if (!isOurs) {
      await runSystemProgram('ip', ['addr', 'del', `${address(1)}/32`, 'dev', link]);
      continue;
    }
    const addresses = Array.from(
      { length: HOSTS },
      (_, index) => `addr add ${address(2 + index)}/28 dev eth0\n`,
    );
    const lines = `link set lo up\nlink set eth0 up\n${addresses.join('')}`;
    await runSystemProgram('ip', ['-n', netns, '-batch', '-'], lines);
    const remove = async () => {
      await runSystemProgram('ip', ['-batch', '-'], `link del ${link}\nnetns del ${netns}\n`);
    };
    return { netns, network, address: (index: number) => address(2 + index), remove };
  }
  throw new Error('no documentation addresses are free');
}

export function lookUpIn(names: NetworkWorld['names']): LookUp {
  return {
    async addresses(name): Promise<Found<AddressRecord>> {
      const entry = names.get(name);
      if (entry === undefined) return { is: 'unknown' };
      const addresses = typeof entry === 'function' ? entry() : entry;
      return { is: 'found', records: addresses.map((address) => ({ address, ttl: 60 })) };
    },
    async records(name, type): Promise<Found<unknown>> {
      if (type === 'TXT' && names.has(name))
        return { is: 'found', records: [['x'.repeat(200)], ['y'.repeat(200)], ['z'.repeat(200)]] };
      return { is: 'unknown' };
    },
  };
}

function startGuest(attachment: Attachment): Guest {
  const program = join(import.meta.dirname, 'guest-program.ts');
  const args = [`--net=/run/netns/${attachment.netns}`, process.execPath, program];
  const child = spawn('nsenter', args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], env: {} });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const ask = asker(child);
  return {
    ...attachment,
    do: ask as Guest['do'],
    async stop() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

function asker(child: ChildProcess) {
  const waiting = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();
  let next = 0;
  child.on('message', ({ id, result, error }: { id: number; result?: unknown; error?: string }) => {
    if (error === undefined) waiting.get(id)?.resolve(result);
    else waiting.get(id)?.reject(new Error(error));
  });
  child.once('exit', () => {
    for (const { reject } of waiting.values()) reject(new Error('the guest is gone'));
  });
  return (action: string, options: unknown) =>
    new Promise((resolve, reject) => {
      const id = next++;
      waiting.set(id, { resolve, reject });
      child.send({ id, action, options });
    });
}

async function expectNothingLeft(tag: string): Promise<void> {
  const left = [
    ...(await readdir('/run/netns')).filter((name) => name.includes(tag)),
    ...(await readdir('/sys/class/net')).filter((name) => name.includes(tag)),
    ...(await claimsOf(tag)),
  ];
  if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
}

async function claimsOf(tag: string): Promise<string[]> {
  const names = await readdir(CLAIMS_DIRECTORY);
  const targets = await Promise.all(
    names.map((name) => readlink(join(CLAIMS_DIRECTORY, name)).catch(() => '')),
  );
  return targets.filter((target) => target.includes(`"${tag}"`));
}
