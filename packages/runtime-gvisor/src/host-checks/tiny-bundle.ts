/** Writes the bundle of a minimal sandbox: its root has the host's system directories in it, read-only. */
import { lstat, mkdir, readlink, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface TinyBundle {
  readonly args: readonly string[];
  /** Further directories, by their path inside. */
  readonly binds?: Readonly<Record<string, { readonly source: string; readonly writable: boolean }>>;
  /** The network namespace to join, as a path; a new and empty one when undefined. */
  readonly netns?: string;
  /** The root directory; `rootfs` in the bundle when undefined. */
  readonly rootfs?: string;
}

const SYSTEM = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/** Also creates the mount points inside the root. */
export async function writeTinyBundle(directory: string, bundle: TinyBundle): Promise<void> {
  const root = bundle.rootfs ?? join(directory, 'rootfs');
  await mkdir(root, { recursive: true });
  const system = await systemMounts(root);
  const binds = Object.entries(bundle.binds ?? {}).map(([at, { source, writable }]) =>
    bind(at, source, writable ? 'rw' : 'ro'),
  );
  const mounts = [{ destination: '/proc', type: 'proc', source: 'proc' }, tmpfs('/tmp'), ...system, ...binds];
  for (const { destination } of mounts) await mkdir(join(root, destination), { recursive: true });
  const own = ['pid', 'ipc', 'uts', 'mount'].map((type) => ({ type }));
  const network = { type: 'network', ...(bundle.netns === undefined ? {} : { path: bundle.netns }) };
  const config = {
    ociVersion: '1.0.2',
    process: { user: { uid: 0, gid: 0 }, args: bundle.args, env: ['PATH=/usr/bin:/bin'], cwd: '/' },
    root: { path: root },
    hostname: 'tiny',
    mounts,
    linux: { namespaces: [...own, network] },
  };
  await writeFile(join(directory, 'config.json'), JSON.stringify(config));
}

/** Where /bin is a link into /usr on the host, it is a link inside too. */
async function systemMounts(root: string): Promise<ReturnType<typeof bind>[]> {
  const mounts = [];
  for (const name of SYSTEM) {
    const found = await lstat(`/${name}`).catch(() => undefined);
    if (found?.isDirectory()) mounts.push(bind(`/${name}`, `/${name}`, 'ro'));
    if (found?.isSymbolicLink()) await symlink(await readlink(`/${name}`), join(root, name));
  }
  return mounts;
}

function bind(destination: string, source: string, mode: 'ro' | 'rw') {
  return { destination, type: 'bind', source, options: ['rbind', mode] };
}

function tmpfs(destination: string) {
  return { destination, type: 'tmpfs', source: 'tmpfs' };
}
