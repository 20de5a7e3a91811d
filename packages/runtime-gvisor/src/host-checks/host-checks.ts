/** Everything that the gVisor runtime needs from a machine, in the order in which it is best mended. */
import { access, constants, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { searchPath } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { checkRunsc, checkRunscUse } from '../binaries/doctor.ts';
import { findRunsc } from '../runsc/find-runsc.ts';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory } from './host-check.ts';
import { checkNetworkNamespaces, checkNftables, checkOverlay, checkScheduling } from './kernel-checks.ts';
import { checkCgroups, checkDisk, checkMemory } from './resource-checks.ts';
import { trialBoot } from './trial-boot.ts';

export type { HostCheck } from './host-check.ts';

type Check = (host: CheckedHost) => Promise<HostCheck>;

/** Quick ones, whose answer may be another at every start. runsc itself is the third. */
export const FIRST_CHECKS: readonly Check[] = [checkSystem, checkTini];
/** Those that try something of the kernel's, whose answer stays until the machine is changed. */
export const KERNEL_CHECKS: readonly Check[] = [checkOverlay, checkNetworkNamespaces, checkNftables];

/** Boots a sandbox too, so it takes seconds. */
export async function hostChecks(host: CheckedHost): Promise<HostCheck[]> {
  const system = await checkSystem();
  // Without that the others fail for no reason of their own.
  if (!system.ok) return [system];
  const room = [checkCgroups, checkDisk, checkMemory];
  const others = [
    checkRunsc,
    checkRunscUse,
    checkTini,
    ...KERNEL_CHECKS,
    checkScheduling,
    ...room,
    checkBoot,
  ];
  const checks = [system];
  for (const check of others) checks.push(await check(host));
  return checks;
}

async function checkSystem(): Promise<HostCheck> {
  const name = 'root on Linux';
  if (process.platform !== 'linux') return bad(name, `this is ${process.platform}`, 'use a Linux machine');
  if (process.getuid?.() === 0) return good(name, 'yes');
  return bad(
    name,
    'this is not root, which makes namespaces and mounts',
    'run Torpor as root: `sudo npm start`',
  );
}

async function checkTini(): Promise<HostCheck> {
  for (const directory of searchPath().split(':')) {
    const program = join(directory, 'tini');
    if (await canExecute(program)) return good('tini', program);
  }
  return bad('tini', 'it is not installed', 'type `sudo apt-get install -y tini`');
}

function canExecute(program: string): Promise<boolean> {
  return access(program, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** The one that tells most: a sandbox on the platform that is used, with everything a pause needs. */
export async function checkBoot(host: CheckedHost): Promise<HostCheck> {
  const name = 'sandbox on systrap';
  const { found } = await findRunsc(host, host.signal);
  if (found === null) return bad(name, 'not tried without runsc', 'get runsc first');
  const place = await mkdtemp(join(await nearestDirectory(host.dataDir), '.torpor-boot-'));
  try {
    await trialBoot(found.program, place, host.signal);
    return good(name, 'a sandbox boots, pauses and comes back');
  } catch (thrown) {
    host.signal.throwIfAborted();
    const fix = 'see https://gvisor.dev/docs/user_guide/platforms for what the machine must allow';
    return bad(name, `no sandbox boots, pauses and comes back: ${TorporError.from(thrown).message}`, fix);
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}
