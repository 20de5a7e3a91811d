/**
 * The digest of a directory tree: names, types, modes, owners, contents and targets of links; not the times. It is the
 * SHA-256 of a tar archive in a fixed order, made by programs: 20,000 files take Node ten times as long.
 *
 * Plain JavaScript that runs on Node 20, because the setup of a clone uses it before anything is installed.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

const DIGEST =
  'set -o pipefail; tar --create --sort=name --mtime=@0 --numeric-owner --format=gnu . | sha256sum --binary';

/** @param {string} root @param {AbortSignal} [signal] @returns {Promise<string>} */
export async function treeDigest(root, signal) {
  const { stdout } = await run('bash', ['-c', DIGEST], { cwd: root, signal });
  return stdout.slice(0, 64);
}
