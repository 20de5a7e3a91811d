/**
 * Real guests for tests: runsc boots each with a network namespace and a root of its own, and the test calls
 * its agent as a server would. `dispose` removes everything that was made here.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import { systemClock } from '@torpor/engine';
import { AGENT_PORT, type AgentClient, asUser, connectAgent, type InitResponse } from '@torpor/envd';
import type { Resources } from '@torpor/protocol';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { usableRunsc } from '../../../testing/runsc-world.ts';
import { shareMounts, unshareMounts } from '../../mounts/mount-sharing.ts';
import { Runsc } from '../../runsc/runsc.ts';
import type { Container } from '../../runsc/runsc-container.ts';
import { makeBaseRoot } from '../base-root.ts';
import { type BaseSystem, BaseSystemCache } from '../base-system.ts';
import { writeBootCredential } from '../boot-credential.ts';
import { findTini, type GuestTools, guestTools } from '../guest-tools.ts';
import type { GuestBind } from '../layout.ts';
import { ociSpec } from '../oci-spec.ts';
import { ReadOnlyBinds } from '../read-only-binds.ts';

/** Not imported from the engine's tests, because benchmarks run this file too. */
const unhurried = new AbortController().signal;

const run = promisify(execFile);

/** Why real guests cannot run here; undefined when they can. */
export async function whyNoGuests(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'guests need root';
  return (await usableRunsc()) === undefined ? 'guests need a runsc that is new enough' : undefined;
}

export interface Guest {
  readonly client: AgentClient;
  readonly address: string;
  readonly credential: string;
  readonly token: string;
  readonly rootfs: string;
  readonly upper: string;
  readonly init: InitResponse;
  /** How long `runsc run` or `runsc restore` took. */
  readonly startMs: number;
  /** How long it took until `until` resolved. */
  readonly readyMs: number;
  /** A client without the token. */
  readonly unauthenticated: AgentClient;
  /** Runs a line of shell in the guest. */
  sh(line: string, options?: { user?: string; env?: Record<string, string> }): Promise<Said>;
  /** Captures the guest and ends it. A guest that is woken from the image has its files as a layer. */
  sleep(): Promise<Image>;
  /** Freezes the guest, captures its memory, calls `sync`, and lets it go on. Says how long it took to sync, and to go on. */
  checkpoint(image: string, sync: () => Promise<void>): Promise<{ syncedMs: number; blinkMs: number }>;
  /** In bytes, on the host. */
  sentryMemory(): Promise<number>;
  stop(): Promise<void>;
}

interface Said {
  readonly output: string;
  readonly errors: string;
  readonly exitCode: number;
}

export interface Image {
  readonly path: string;
  /** Newest first. */
  readonly layers: readonly string[];
  readonly binds: readonly GuestBind[];
  readonly credential: string;
}

interface BootOptions {
  readonly template?: 'base' | { readonly root: string };
  readonly sudo?: boolean;
  readonly resources?: Resources;
}

interface WakeOptions {
  readonly hostname?: string;
  /** Awaited when everything around the guest is set up, before the time is measured. */
  readonly rest?: () => Promise<unknown>;
  /** Awaited before any other call; gets the address of the guest. */
  readonly until?: (address: string) => Promise<unknown>;
}

export interface GuestWorld {
  readonly directory: string;
  readonly tools: GuestTools;
  readonly system: BaseSystem;
  boot(options?: BootOptions): Promise<Guest>;
  wake(image: Image, options?: WakeOptions): Promise<Guest>;
  dispose(): Promise<void>;
}

export async function makeGuestWorld(): Promise<GuestWorld> {
  const agentDir = await agentBundle();
  const directory = await realpath(await mkdtemp('/var/tmp/torpor-guests-'));
  const readOnlyBinds = new ReadOnlyBinds(join(directory, 'view'));
  const removeAll = async () => {
    await readOnlyBinds.unmountAll(unhurried);
    await unshareMounts(directory, unhurried);
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await shareMounts(directory, unhurried);
    return await buildWorld(directory, readOnlyBinds, agentDir, removeAll);
  } catch (thrown) {
    await removeAll();
    throw thrown;
  }
}

async function buildWorld(
  directory: string,
  readOnlyBinds: ReadOnlyBinds,
  agentDir: string,
  removeAll: () => Promise<void>,
): Promise<GuestWorld> {
  const store = await openDirectoryStore({ root: join(directory, 'checkpoints') });
  const tools = await guestTools({
    programs: store.layerStore.programs,
    node: process.execPath,
    agentDir,
    tini: await findTini(),
  });
  const systems = new BaseSystemCache({ readOnlyBinds, tools, clock: systemClock });
  const system = await systems.current();
  systems.close();
  const toolsSource = await readOnlyBinds.mount(tools.directory, unhurried);
  const base = join(directory, 'base');
  await mkdir(base);
  await makeBaseRoot(base, system.directories);
  const runsc = new Runsc({
    program: (await usableRunsc()) ?? 'runsc',
    root: join(directory, 'runsc'),
    network: 'sandbox',
    ignoreCgroups: true,
  });
  const guests = new Set<Guest>();
  let made = 0;

  const launch = async (
    layers: readonly string[],
    binds: readonly GuestBind[],
    start: (container: Container, place: Place) => Promise<string>,
    { sudo = true, resources = {}, hostname, rest, until }: BootOptions & WakeOptions = {},
  ): Promise<Guest> => {
    made += 1;
    const place = await setUpPlace(directory, `g${made}`, layers);
    const container: Container = {
      id: place.name,
      bundle: place.bundle,
      logs: place.logs,
      netns: place.netns,
    };
    const spec = ociSpec({
      rootfs: place.rootfs,
      hostname: 'sandbox',
      tools,
      toolsSource,
      binds,
      agentPort: AGENT_PORT,
      networkNamespace: place.netns,
      cgroup: null,
      resources,
      sudo,
      filterRawSockets: false,
      setuid: false,
    });
    await writeFile(join(place.bundle, 'config.json'), JSON.stringify(spec));
    const credentials = { old: '', credential: secret(), token: secret() };
    try {
      await rest?.();
      const began = performance.now();
      credentials.old = await start(container, place);
      const startMs = performance.now() - began;
      await until?.(place.address);
      const readyMs = performance.now() - began;
      const launched = { place, container, runsc, layers, binds, startMs, readyMs, hostname };
      const guest = await setUp(launched, credentials);
      guests.add(guest);
      return guest;
    } catch (thrown) {
      await takeDown(runsc, container, place);
      throw thrown;
    }
  };

  return {
    directory,
    tools,
    system,
    boot: (options = {}) => {
      const { template = 'base' } = options;
      const root = template === 'base' ? base : template.root;
      const binds = template === 'base' ? system.binds : [];
      return launch(
        [root],
        binds,
        async (container, place) => {
          const first = secret();
          await writeBootCredential(place.rootfs, first);
          await runsc.run(container, unhurried);
          return first;
        },
        options,
      );
    },
    wake: (image, options = {}) =>
      launch(
        image.layers,
        image.binds,
        async (container) => {
          await runsc.restore(container, image.path, unhurried);
          return image.credential;
        },
        options,
      ),
    async dispose() {
      for (const guest of guests) await guest.stop();
      runsc.close();
      await removeAll();
    },
  };
}

function secret(): string {
  return randomBytes(16).toString('hex');
}

interface Place {
  readonly name: string;
  readonly rootfs: string;
  readonly upper: string;
  readonly bundle: string;
  readonly logs: string;
  readonly image: string;
  readonly netnsName: string;
  readonly netns: string;
  readonly address: string;
}

/** Sets up the root and the network of a guest: test addresses, four for each guest, and unique names. */
async function setUpPlace(directory: string, name: string, layers: readonly string[]): Promise<Place> {
  const tag = randomBytes(3).toString('hex');
  const at = join(directory, name);
  const place = {
    name: `${tag}-${name}`,
    rootfs: join(at, 'rootfs'),
    upper: join(at, 'upper'),
    bundle: join(at, 'bundle'),
    logs: join(at, 'logs'),
    image: join(at, 'image'),
    netnsName: `torpor-test-${tag}`,
    netns: `/run/netns/torpor-test-${tag}`,
    address: '',
  };
  for (const each of [place.rootfs, place.upper, place.bundle, join(at, 'work')]) {
    await mkdir(each, { recursive: true });
  }
  const lower = `lowerdir=${layers.join(':')},upperdir=${place.upper},workdir=${join(at, 'work')}`;
  await run('mount', [
    '-t',
    'overlay',
    '-o',
    `${lower},redirect_dir=on,index=off,metacopy=off`,
    'overlay',
    place.rootfs,
  ]);
  const block = randomBytes(2);
  const [host, guest] = [1, 2].map(
    (last) => `198.${18 + ((block[0] ?? 0) & 1)}.${block[1]}.${4 * ((block[0] ?? 0) >> 2) + last}`,
  );
  const link = `tpt${tag}`;
  for (const line of [
    `netns add ${place.netnsName}`,
    `link add ${link} type veth peer name eth0 netns ${place.netnsName}`,
    `addr add ${host}/30 dev ${link}`,
    `link set ${link} up`,
    `-n ${place.netnsName} link set lo up`,
    `-n ${place.netnsName} addr add ${guest}/30 dev eth0`,
    `-n ${place.netnsName} link set eth0 up`,
    `-n ${place.netnsName} route add default via ${host}`,
  ]) {
    await run('ip', line.split(' '));
  }
  return { ...place, address: guest ?? '' };
}

async function takeDown(runsc: Runsc, container: Container, place: Place): Promise<void> {
  await runsc.delete(container, unhurried);
  await run('umount', [place.rootfs]);
  await run('ip', ['netns', 'del', place.netnsName]);
}

interface Launched {
  readonly place: Place;
  readonly container: Container;
  readonly runsc: Runsc;
  readonly layers: readonly string[];
  readonly binds: readonly GuestBind[];
  readonly startMs: number;
  readonly readyMs: number;
  readonly hostname: string | undefined;
}

async function setUp(
  launched: Launched,
  { old, credential, token }: { old: string; credential: string; token: string },
): Promise<Guest> {
  const { place, container, runsc, layers, binds } = launched;
  const baseUrl = `http://${place.address}:${AGENT_PORT}`;
  const unauthenticated = connectAgent({ baseUrl });
  const client = connectAgent({ baseUrl, accessToken: token });
  await untilHealthy(unauthenticated);
  const init = await unauthenticated.init(
    {
      credential,
      accessToken: token,
      defaultUser: 'user',
      hostname: launched.hostname ?? 'sandbox',
      sandboxId: place.name,
      timestamp: Date.now(),
      resolvConf: 'nameserver 192.0.2.1\n',
      hosts: `${place.address} ${launched.hostname ?? 'sandbox'}\n`,
    },
    { credential: old },
  );
  let isUp = true;
  // The host must close its connections into a guest before the memory can be captured.
  const disconnect = async () => {
    client.close();
    unauthenticated.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
  };
  const leave = async () => {
    client.close();
    unauthenticated.close();
    if (isUp) await takeDown(runsc, container, place);
    isUp = false;
  };
  return {
    client,
    unauthenticated,
    credential,
    token,
    init,
    startMs: launched.startMs,
    readyMs: launched.readyMs,
    address: place.address,
    rootfs: place.rootfs,
    upper: place.upper,
    sh: (line, options) => sh(client, line, options),
    async sleep() {
      await runsc.freeze(container, unhurried);
      await disconnect();
      await runsc.writeImage(container, place.image, unhurried);
      await leave();
      return { path: place.image, layers: [place.upper, ...layers], binds, credential };
    },
    async checkpoint(image, sync) {
      await disconnect();
      const began = performance.now();
      await runsc.freeze(container, unhurried);
      await runsc.writeImage(container, image, unhurried);
      await sync();
      const syncedMs = performance.now() - began;
      await runsc.thaw(container, unhurried);
      return { syncedMs, blinkMs: performance.now() - began };
    },
    async sentryMemory() {
      const state = await runsc.state(container, unhurried);
      if (!('pid' in state)) return 0;
      const { stdout } = await run('cat', [`/proc/${state.pid}/smaps_rollup`]);
      return Number(/^Pss:\s+(\d+) kB/m.exec(stdout)?.[1] ?? 0) * 1024;
    },
    stop: leave,
  };
}

async function untilHealthy(client: AgentClient): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    const failure = await client.health({ signal: AbortSignal.timeout(2000) }).then(
      () => undefined,
      (error: Error) => error,
    );
    if (failure === undefined) return;
    if (tries > 1000) throw failure;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function sh(
  client: AgentClient,
  line: string,
  { user, env = {} }: { user?: string; env?: Record<string, string> } = {},
): Promise<Said> {
  const process = { cmd: '/bin/sh', args: ['-c', line], envs: env };
  const headers = user === undefined ? {} : { headers: asUser(user) };
  const said = { output: '', errors: '', exitCode: -1 };
  for await (const { event } of client.process.start({ process, stdin: false }, headers)) {
    if (event?.event.case === 'data') {
      const { output } = event.event.value;
      const text = Buffer.from(output.value ?? []).toString('utf8');
      if (output.case === 'stdout') said.output += text;
      if (output.case === 'stderr') said.errors += text;
    }
    if (event?.event.case === 'end') said.exitCode = event.event.value.exitCode;
  }
  return said;
}
