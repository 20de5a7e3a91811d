/**
 * Builds the S3 server of the test lab from its Go module, once for all clones on a machine.
 *
 * The program appears as /var/lib/torpor/lab/versitygw-<version>/versitygw only when it is complete. A lock keeps two
 * processes from building at once.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  LAB,
  VERSITYGW_VERSION,
  versitygwProgram,
} from '../../packages/object-store/testing/lab-program.mjs';
import { findGo } from '../../packages/runtime-gvisor/src/binaries/build.mjs';
import {
  downloadEnvironment,
  everySecond,
  runBuild,
} from '../../packages/runtime-gvisor/src/machine-wide-build.mjs';

const SOURCE = `github.com/versity/versitygw/cmd/versitygw@${VERSITYGW_VERSION}`;

/**
 * Builds the program at the lowest priority, unless it exists. Resolves with its path; rejects with the reason.
 * @param {(line: string) => void} say
 * @param {string} [lab]
 * @returns {Promise<string>}
 */
export async function buildVersitygw(say, lab = LAB) {
  const program = versitygwProgram(lab);
  if (existsSync(program)) return program;
  const go = findGo(process.env['PATH'] ?? '');
  if (go === undefined) throw new Error('Go is not installed');
  mkdirSync(lab, { recursive: true, mode: 0o755 });
  const place = mkdtempSync(join(lab, '.building-'));
  try {
    let packages = 0;
    const progress = everySecond((/** @type {number} */ compiled) => say(`${compiled} packages compiled`));
    // -v prints one line for each compiled package.
    await runBuild([go, 'install', '-v', '-trimpath', '-buildvcs=false', '-ldflags', '-s -w', SOURCE], {
      lock: join(lab, '.build.lock'),
      cwd: place,
      env: { ...downloadEnvironment(/^GO/), GOFLAGS: '', CGO_ENABLED: '0', GOBIN: place },
      onOutput: (text) => {
        packages += text.split('\n').filter((line) => line !== '' && !line.startsWith('go: ')).length;
        progress(packages);
      },
    });
    // Another process may have built it while this one waited for the lock.
    if (existsSync(program)) return program;
    mkdirSync(dirname(program), { recursive: true });
    renameSync(join(place, 'versitygw'), program);
    return program;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}
