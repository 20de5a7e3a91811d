/** The named network namespaces of `ip netns`. */
import { readdir, statfs } from 'node:fs/promises';
import { isMissing } from '@torpor/host';
import { namespacePath, runSystemProgram } from './system-program.ts';

/** The file system type of namespace files (NSFS_MAGIC). */
const NAMESPACE_FILE_SYSTEM = 0x6e736673;

/** False for an empty file, which a reboot or an interrupted creation leaves. */
export async function isLiveNamespace(netns: string): Promise<boolean> {
  try {
    return (await statfs(namespacePath(netns))).type === NAMESPACE_FILE_SYSTEM;
  } catch (thrown) {
    if (isMissing(thrown)) return false;
    throw thrown;
  }
}

/** All names with this prefix, also of empty files. */
export async function namespaceNames(prefix: string): Promise<string[]> {
  const names = await readdir('/run/netns').catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
  return names.filter((name) => name.startsWith(prefix));
}

/** Ignores missing namespaces, also when another process removes one at the same time. */
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
