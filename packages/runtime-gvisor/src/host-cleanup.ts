/** Finds and removes what the gVisor sandboxes of a data directory have left on the host. For `torpor destroy`. */
import { realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type GuardTargets, hostMountNamespace, refuseMountsBelow } from '@torpor/host';
import { namespaceNames, removeNamespaces } from '@torpor/network';
import { Cgroups, findCgroups } from './container/cgroups.ts';
import { runDirectory } from './container/run-directory.ts';
import { memoryDirectory } from './image/image-memory.ts';
import { serverTag } from './instance/instance-names.ts';
import { removeMountNamespace, unmountOnHost } from './mounts/mount-namespace.ts';
import { runscProcesses } from './runsc/sentries.ts';

/** The running containers of a data directory; when only processes without a known container run, their pids. */
export async function runningContainers(dataDir: string): Promise<string[]> {
  const root = join(runDirectory(serverTag(await realpath(dataDir))), 'runsc');
  const processes = await runscProcesses(root);
  const containers = processes.flatMap(({ container }) => container ?? []);
  return containers.length > 0 ? [...new Set(containers)] : processes.map(({ pid }) => `process ${pid}`);
}

/** The processes of all sandboxes of a data directory, for the guard of a node. */
export async function gvisorGuardTargets(dataDir: string): Promise<GuardTargets> {
  const tag = serverTag(await realpath(dataDir));
  const host = await findCgroups();
  return {
    cgroups: host === null ? [] : new Cgroups(host, `torpor-${tag}`).directories(),
    commands: [
      {
        names: ['runsc-sandbox', 'runsc-gofer'],
        argument: `--root=${join(runDirectory(tag), 'runsc')}`,
      },
    ],
    marked: [],
  };
}

/**
 * Removes mounts, namespaces, control groups and files outside the data directory. No sandbox of the data directory may
 * run. May be repeated. Network addresses are released by the next server that allocates some.
 */
export async function cleanUpHost(dataDir: string, signal: AbortSignal): Promise<void> {
  const realDataDir = await realpath(dataDir);
  const tag = serverTag(realDataDir);
  const runDir = runDirectory(tag);
  await removeMountNamespace(runDir, signal);
  await unmountOnHost(join(realDataDir, 'gvisor'), signal);
  await removeNamespaces(await namespaceNames(`${tag}-`));
  const host = await findCgroups();
  if (host !== null) {
    const cgroups = new Cgroups(host, `torpor-${tag}`);
    for (const name of await cgroups.list()) await cgroups.remove(name);
    await cgroups.close();
  }
  for (const directory of [memoryDirectory(tag), runDir]) {
    refuseMountsBelow(hostMountNamespace, directory);
    await rm(directory, { recursive: true, force: true });
  }
}
