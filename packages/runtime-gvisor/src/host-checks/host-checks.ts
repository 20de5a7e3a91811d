/** Checks everything that the gVisor runtime needs from a host, in the order in which an operator should fix it. */
import { access, constants, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { searchPath } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { checkBase } from '../base/doctor.ts';
import { checkRunsc, checkRunscUse } from '../binaries/doctor.ts';
import { findRunsc } from '../runsc/find-runsc.ts';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory } from './host-check.ts';
import { checkNetworkNamespaces, checkNftables, checkOverlay, checkScheduling } from './kernel-checks.ts';
import {
  checkCgroups,
  checkDisk,
  checkMemory,
  checkProjectQuotas,
  checkReflinks,
} from './resource-checks.ts';
import { trialBoot } from './trial-boot.ts';

export type { HostCheck } from './host-check.ts';

type Check = (host: CheckedHost) => Promise<HostCheck>;

/** Quick checks whose result may change from start to start. The search for runsc follows them. */
export const FIRST_CHECKS: readonly Check[] = [checkSystem, checkTini];
/** Checks of the kernel, whose result stays the same until the host is changed. */
export const KERNEL_CHECKS: readonly Check[] = [checkOverlay, checkNetworkNamespaces, checkNftables];

/** Takes seconds, because it boots a sandbox too. */
export async function hostChecks(host: CheckedHost): Promise<HostCheck[]> {
  const system = await checkSystem();
  // Without root on Linux all other checks fail for the same reason.
  if (!system.ok) return [system];
  const resourceChecks = [checkCgroups, checkDisk, checkReflinks, checkProjectQuotas, checkMemory];
  const others = [
    checkRunsc,
    checkRunscUse,
    checkTini,
    ...KERNEL_CHECKS,
    checkScheduling,
    ...resourceChecks,
    checkBase,
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
  return bad('tini', 'not installed', 'type `sudo apt-get install -y tini`');
}

function canExecute(program: string): Promise<boolean> {
  return access(program, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** The check that proves most: a sandbox on the platform in use, with everything that a pause needs. */
export async function checkBoot(host: CheckedHost): Promise<HostCheck> {
  const name = 'sandbox on systrap';
  const { found } = await findRunsc(host, host.signal);
  if (found === null) return bad(name, 'not tried without runsc', 'get runsc first');
  const place = await mkdtemp(join(await nearestDirectory(host.dataDir), '.torpor-boot-'));
  try {
    await trialBoot(found.program, place, host.signal);
    return good(name, 'a sandbox boots, pauses and resumes');
  } catch (thrown) {
    host.signal.throwIfAborted();
    const fix = 'see https://gvisor.dev/docs/user_guide/platforms for what the host must allow';
    return bad(name, `no sandbox boots, pauses and resumes: ${TorporError.from(thrown).message}`, fix);
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}
