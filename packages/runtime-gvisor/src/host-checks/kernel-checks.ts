/**
 * Checks what the kernel must support: overlayfs, network namespaces, nftables, batch scheduling. Each feature is tried
 * in namespaces that end with the trial, so that nothing is left of it even when it is killed.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '@torpor/host';
import { bad, type CheckedHost, good, type HostCheck, nearestDirectory, trial } from './host-check.ts';

const LAYERS = 'lowerdir=lower,upperdir=upper,workdir=work,redirect_dir=on,index=off,metacopy=off';
/** Renaming a directory of a lower layer fails where the kernel or the disk does not support redirects. */
const RENAME = 'require("node:fs").renameSync("root/old", "root/new")';
const MOUNT_AND_RENAME = 'mount -t overlay torpor -o "$1" root && exec "$2" -e "$3"';

export async function checkOverlay(host: CheckedHost): Promise<HostCheck> {
  const name = 'overlayfs';
  const disk = await nearestDirectory(host.dataDir);
  const fix =
    'choose a data directory on ext4, xfs or btrfs (--data-dir); in a container, on a volume of its own';
  let directory: string;
  try {
    directory = await mkdtemp(join(disk, '.torpor-check-'));
  } catch (thrown) {
    return bad(name, `nothing can be written in ${disk} (${errnoOf(thrown)})`, fix);
  }
  try {
    for (const part of ['lower/old', 'upper', 'work', 'root'])
      await mkdir(join(directory, part), { recursive: true });
    const script = ['sh', '-c', MOUNT_AND_RENAME, 'sh', LAYERS, process.execPath, RENAME];
    const said = await trial(['unshare', '--mount', '--propagation', 'slave', ...script], host, directory);
    if (said === null) return good(name, `layers can be stacked in ${disk}`);
    return bad(name, `layers cannot be stacked in ${disk}: ${said}`, fix);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export async function checkNetworkNamespaces(host: CheckedHost): Promise<HostCheck> {
  const name = 'network namespaces';
  const pair = ['ip', 'link', 'add', 'torpor0', 'type', 'veth', 'peer', 'name', 'torpor1'];
  const said = await trial(['unshare', '--net', ...pair], host);
  if (said === null) return good(name, 'can be made, with veth pairs');
  const fix = 'type `sudo apt-get install -y iproute2`, and `sudo modprobe veth`';
  return bad(name, `no veth pair in a new network namespace: ${said}`, fix);
}

/** The kind of rule that redirects the connections of a sandbox to the egress proxy, for an interface that does not exist. */
const RULES = [
  'add table inet torpor_check',
  'add chain inet torpor_check out { type nat hook prerouting priority dstnat; }',
  'add rule inet torpor_check out iifname "torpor0" meta l4proto tcp redirect to :1',
  'delete table inet torpor_check',
].join('; ');

export async function checkNftables(host: CheckedHost): Promise<HostCheck> {
  const name = 'nftables';
  const said = await trial(['unshare', '--net', 'nft', RULES], host);
  if (said === null) return good(name, 'a table with a redirecting rule can be added and removed');
  const fix =
    'type `sudo apt-get install -y nftables`, and `sudo modprobe -a nf_tables nft_redir nft_chain_nat`';
  return bad(name, `no table with a redirecting rule: ${said}`, fix);
}

/** Sandboxes run without it, but wake more slowly: see docs/runtimes/gvisor.md. */
export async function checkScheduling(host: CheckedHost): Promise<HostCheck> {
  const name = 'batch scheduling';
  const said = await trial(['chrt', '--batch', '0', 'true'], host);
  if (said === null) return good(name, 'available');
  const fix = 'type `sudo apt-get install -y util-linux`; in a container, allow `sched_setscheduler`';
  return bad(name, `not available, so that sandboxes wake more slowly: ${said}`, fix);
}
