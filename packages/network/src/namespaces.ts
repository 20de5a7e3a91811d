/** Named network namespaces as `ip netns` keeps them. */
import { readdir, statfs } from 'node:fs/promises';
import { errnoOf } from '@torpor/host';
import { namespacePath, runSystemProgram } from './system-program.ts';

/** The kind of file system that namespaces are files of (NSFS_MAGIC). */
const NAMESPACE_FILE_SYSTEM = 0x6e736673;

/** After a reboot, or half-way through its making, a name can be an empty file and no namespace. */
export async function isLiveNamespace(netns: string): Promise<boolean> {
  try {
    return (await statfs(namespacePath(netns))).type === NAMESPACE_FILE_SYSTEM;
  } catch (thrown) {
    if (errnoOf(thrown) === 'ENOENT') return false;
    throw thrown;
  }
}

/** Every name that begins so, namespace or not. */
export async function namespaceNames(prefix: string): Promise<string[]> {
  const names = await readdir('/run/netns').catch((thrown: unknown) => {
    if (errnoOf(thrown) === 'ENOENT') return [];
    throw thrown;
  });
  return names.filter((name) => name.startsWith(prefix));
}

/** Absent is fine, also when somebody else removes one at the same time. */
export async function removeNamespaces(names: readonly string[]): Promise<void> {
  const present = await presentOf(names);
  if (present.length === 0) return;
  const lines = present.map((name) => `netns del ${name}\n`).join('');
  await runSystemProgram('ip', ['-force', '-batch', '-'], lines).catch(async (thrown: unknown) => {
    if ((await presentOf(names)).length > 0) throw thrown;
  });
}

async function presentOf(names: readonly string[]): Promise<string[]> {
  return (await namespaceNames('')).filter((name) => names.includes(name));
}
