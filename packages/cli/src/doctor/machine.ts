/** Checks this machine: Node, disk space, and the configured database. */
import { access, constants, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { canConnect } from '../connection.ts';
import { bytes } from '../human-units.ts';
import type { Check } from './check.ts';

const NEEDED_MAJOR = 24;
/** Below this a checkpoint of a medium-sized sandbox no longer fits. */
const LOW_BYTES = 1_000_000_000;
const TOO_LOW_BYTES = 100_000_000;

export function checkNode(version: string): Check {
  const what = 'Node';
  if (Number(version.slice(1).split('.')[0]) >= NEEDED_MAJOR) return { is: 'good', what, detail: version };
  return {
    is: 'wrong',
    what,
    detail: version,
    todo: `Install Node ${NEEDED_MAJOR} or newer: run \`npm install\` in the clone.`,
  };
}

export async function checkDataDirectory(dataDir: string): Promise<Check> {
  const what = 'Data directory';
  const there = await nearestExisting(dataDir);
  const writable = await access(there, constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!writable) {
    const todo = `Make ${there} writable, or choose another directory with --data-dir or TORPOR_DATA_DIR.`;
    return { is: 'wrong', what, detail: `${dataDir} cannot be written`, todo };
  }
  const { bavail, bsize } = await statfs(there);
  const free = bavail * bsize;
  const detail = `${dataDir}${there === dataDir ? '' : ' (created at the first start)'}, ${bytes(free)} free`;
  const todo = 'Free space on this disk. Checkpoints are stored there.';
  if (free < TOO_LOW_BYTES) return { is: 'wrong', what, detail, todo };
  return free < LOW_BYTES ? { is: 'note', what, detail, todo } : { is: 'good', what, detail };
}

async function nearestExisting(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const found = await stat(at).catch(() => undefined);
    if (found !== undefined || at === dirname(at)) return at;
  }
}

/** The embedded database needs no check. */
export async function checkDatabase(url: string | undefined): Promise<Check[]> {
  if (!url) return [];
  const what = 'PostgreSQL';
  if (!URL.canParse(url)) {
    return [
      {
        is: 'wrong',
        what,
        detail: 'TORPOR_DATABASE_URL is not a valid address',
        todo: 'Use the form postgres://user@host/name.',
      },
    ];
  }
  const { hostname, port } = new URL(url);
  const where = `${hostname}:${port || 5432}`;
  if (await canConnect(hostname, Number(port || 5432)))
    return [{ is: 'good', what, detail: `${where} answers` }];
  const todo = 'Start it, or correct TORPOR_DATABASE_URL. Unset it to use the embedded database.';
  return [{ is: 'wrong', what, detail: `no answer at ${where}`, todo }];
}
