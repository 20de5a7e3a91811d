/** What `torpor doctor` reports about the root of `base`. */
import { bad, good, type HostCheck } from '../host-checks/host-check.ts';
import { findMachineBase, obstacleToBase, readBaseStatus } from './build-base.mjs';

const COST =
  'sandboxes see the system directories of this host, cannot install Debian packages, and lose their memory when a ' +
  'package of the host changes';

export async function checkBase(): Promise<HostCheck> {
  const name = 'root of base';
  const base = findMachineBase();
  const status = readBaseStatus();
  if (base !== undefined) {
    const size = `${Math.round(base.bytes / 1024 ** 2)} MB`;
    const next = status?.state === 'building' ? `; a newer one is being made (${status.progress})` : '';
    return good(name, `${base.digest.slice(0, 12)} of ${base.builtAt.slice(0, 10)}, ${size}${next}`);
  }
  if (status?.state === 'building') {
    return good(name, `being made (${status.progress}); until then ${COST}`);
  }
  const obstacle = obstacleToBase();
  if (obstacle !== undefined) return bad(name, `${obstacle}, so ${COST}`, fixFor(obstacle));
  if (status?.state === 'failed') {
    return bad(name, `it could not be made (${status.why}), so ${COST}`, 'restart the server to try again');
  }
  return good(name, `will be made when the server starts next; until then ${COST}`);
}

function fixFor(obstacle: string): string {
  if (obstacle.startsWith('mmdebstrap'))
    return 'type `sudo apt-get install -y mmdebstrap`, and restart the server';
  if (obstacle.startsWith('npm')) return 'install npm, and restart the server';
  return 'free some space, and restart the server; or create a template "base" from a root of your own';
}
