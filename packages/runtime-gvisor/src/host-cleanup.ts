/** What a data directory's gVisor sandboxes have left on this machine: is any running, and takes the rest away. */
import { realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { hostMountPlace, refuseMountsBelow } from '@torpor/host';
import { namespaceNames, removeNamespaces } from '@torpor/network';
import { Cgroups, findCgroups } from './container/cgroups.ts';
import { runDirectory } from './container/run-directory.ts';
import { memoryDirectory } from './image/image-memory.ts';
import { serverTag } from './instance/instance-names.ts';
import { removeMountNamespace, unmountOnHost } from './mounts/mount-namespace.ts';
import { runscProcesses } from './runsc/sentries.ts';

/** What of this data directory has a process on this machine: containers, or processes of which no container is known. */
export async function runningContainers(dataDir: string): Promise<string[]> {
  const root = join(runDirectory(serverTag(await realpath(dataDir))), 'runsc');
  const processes = await runscProcesses(root);
  const containers = processes.flatMap(({ container }) => container ?? []);
  return containers.length > 0 ? [...new Set(containers)] : processes.map(({ pid }) => `process ${pid}`);
}

/**
 * Removes mounts, namespaces, control groups and files outside the data directory. Nothing of it may run. What is gone
 * already is fine, so this may be repeated. Addresses are given back by the next server that looks for some.
 */
export async function cleanUpHost(dataDir: string, signal: AbortSignal): Promise<void> {
  const place = await realpath(dataDir);
  const tag = serverTag(place);
  const runDir = runDirectory(tag);
  await removeMountNamespace(runDir, signal);
  await unmountOnHost(join(place, 'gvisor'), signal);
  await removeNamespaces(await namespaceNames(`${tag}-`));
  const host = await findCgroups();
  if (host !== null) {
    const cgroups = new Cgroups(host, `torpor-${tag}`);
    for (const name of await cgroups.list()) await cgroups.remove(name);
    await cgroups.close();
  }
  for (const directory of [memoryDirectory(tag), runDir]) {
    refuseMountsBelow(hostMountPlace, directory);
    await rm(directory, { recursive: true, force: true });
  }
}
