import { describe, expect, it } from 'vitest';
import type { GuestTools } from './guest-tools.ts';
import { type GuestSpec, ociSpec } from './oci-spec.ts';

const tools: GuestTools = {
  fingerprint: 'f',
  directory: '/data/guest/f',
  loader: ['/.torpor/lib/ld.so', '--library-path', '/.torpor/lib'],
  init: ['/.torpor/tini', '--'],
  setuid: true,
};

const guest: GuestSpec = {
  rootfs: '/data/instances/1/rootfs',
  hostname: 'box',
  tools,
  toolsSource: '/data/view/f',
  binds: [
    { source: '/data/view/usr', destination: '/usr' },
    { source: '/data/view/f/empty', destination: '/usr/local/etc' },
  ],
  agentPort: 49_983,
  networkNamespace: '/run/netns/box',
  cgroup: { path: '/torpor/box', countsSwap: true },
  resources: { memoryMb: 512, cpus: 1.5, processes: 256, diskMb: 1000 },
  sudo: true,
  filterRawSockets: false,
  setuid: false,
};

describe('the configuration of a guest', () => {
  it('starts tini, which starts the agent, with the libraries of the tools', () => {
    const { process } = ociSpec(guest);
    const line = process.args.join(' ');
    expect(line).toMatch(
      /^\/\.torpor\/tini -- \/\.torpor\/lib\/ld\.so --library-path \/\.torpor\/lib \/\.torpor\/node --/,
    );
    expect(line).toContain('/.torpor/agent/agent.mjs --listen 0.0.0.0:49983 --own-machine');
    expect(line).toContain('--processors-dir /.torpor/run/processors --sudo-dir /.torpor/run/sudo');
    expect(process).toMatchObject({
      cwd: '/',
      terminal: false,
      user: { uid: 0, gid: 0 },
      noNewPrivileges: true,
    });
  });

  it('lets set-user-ID programs change their user only where that is asked for', () => {
    expect(ociSpec(guest).process.noNewPrivileges).toBe(true);
    expect(ociSpec({ ...guest, setuid: true }).process.noNewPrivileges).toBe(false);
  });

  it('has no sudo socket without the sudo policy', () => {
    expect(ociSpec({ ...guest, sudo: false }).process.args).not.toContain('--sudo-dir');
  });

  it('passes nothing of the server’s environment', () => {
    expect(ociSpec(guest).process.env.map((each) => each.split('=')[0])).toEqual(['PATH', 'HOME', 'LANG']);
    expect(ociSpec(guest).process.env[0]).toMatch(/^PATH=\/\.torpor\/bin:/);
  });

  it('gives root of the guest the capabilities that packages need, and none for networks or devices', () => {
    const { capabilities } = ociSpec(guest).process;
    for (const each of ['CAP_CHOWN', 'CAP_DAC_OVERRIDE', 'CAP_SETUID', 'CAP_NET_BIND_SERVICE', 'CAP_KILL']) {
      expect(capabilities.effective).toContain(each);
    }
    for (const each of [
      'CAP_NET_RAW',
      'CAP_NET_ADMIN',
      'CAP_MKNOD',
      'CAP_SYS_MODULE',
      'CAP_SYS_RAWIO',
      'CAP_SYS_BOOT',
    ]) {
      expect(Object.values(capabilities).flat()).not.toContain(each);
    }
    expect(capabilities.permitted).toEqual(capabilities.bounding);
    expect([capabilities.inheritable, capabilities.ambient]).toEqual([[], []]);
  });

  it('binds only the given host directories, read-only', () => {
    const binds = ociSpec(guest).mounts.filter(({ type }) => type === 'bind');
    expect(binds.map(({ source, destination }) => [source, destination])).toEqual([
      ['/data/view/usr', '/usr'],
      ['/data/view/f/empty', '/usr/local/etc'],
      ['/data/view/f', '/.torpor'],
    ]);
    for (const { options } of binds)
      expect(options).toEqual(expect.arrayContaining(['bind', 'ro', 'nosuid', 'nodev']));
  });

  it('mounts the usual file systems, parents first', () => {
    const places = ociSpec(guest).mounts.map(({ destination }) => destination);
    expect(places).toEqual(
      expect.arrayContaining(['/proc', '/dev', '/dev/pts', '/dev/shm', '/sys', '/.torpor/run']),
    );
    for (const [index, place] of places.entries()) {
      const below = places.slice(0, index).filter((earlier) => earlier.startsWith(`${place}/`));
      expect(below, place).toEqual([]);
    }
    expect(ociSpec(guest).mounts.find(({ destination }) => destination === '/sys')?.options).toContain('ro');
    // /tmp is on the disk: memory makes a pause slower.
    expect(places).not.toContain('/tmp');
  });

  it('has namespaces of its own, and the given network namespace', () => {
    const { namespaces } = ociSpec(guest).linux;
    expect(namespaces).toContainEqual({ type: 'network', path: '/run/netns/box' });
    expect(namespaces.map(({ type }) => type).toSorted()).toEqual([
      'cgroup',
      'ipc',
      'mount',
      'network',
      'pid',
      'uts',
    ]);
    expect(ociSpec({ ...guest, networkNamespace: null }).linux.namespaces).toContainEqual({
      type: 'network',
    });
  });

  it('has its limits in a control group, where the host has one', () => {
    expect(ociSpec(guest).linux).toMatchObject({
      cgroupsPath: '/torpor/box',
      resources: {
        memory: { limit: 536_870_912, swap: 536_870_912 },
        cpu: { period: 100_000, quota: 150_000 },
        pids: { limit: 768 },
      },
    });
    expect(ociSpec(guest).process.rlimits).toContainEqual({ type: 'RLIMIT_NPROC', hard: 256, soft: 256 });
    const without = ociSpec({ ...guest, cgroup: null }).linux;
    expect(without).not.toHaveProperty('cgroupsPath');
    expect(without).not.toHaveProperty('resources');
  });

  it('limits only the given resources, and swap only where the kernel can limit it', () => {
    const { linux } = ociSpec({ ...guest, resources: {} });
    expect(linux.resources).toEqual({});
    const unswapped = ociSpec({
      ...guest,
      cgroup: { path: '/x', countsSwap: false },
      resources: { memoryMb: 64 },
    });
    expect(unswapped.linux.resources).toEqual({ memory: { limit: 67_108_864 } });
    const little = ociSpec({ ...guest, resources: { cpus: 0.001 } });
    expect(little.linux.resources).toMatchObject({ cpu: { quota: 1000 } });
  });

  it('is the same for the same guest, and can be written as JSON', () => {
    expect(JSON.parse(JSON.stringify(ociSpec(guest)))).toEqual(ociSpec(guest));
    expect(ociSpec({ ...guest, annotations: { 'torpor.sandbox': 'sbx_1' } }).annotations).toEqual({
      'torpor.sandbox': 'sbx_1',
    });
  });
});
