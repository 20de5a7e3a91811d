/**
 * Chooses the runsc for new sandboxes, in this order: the program that the operator has configured; a recent one on the
 * search path; the newest of those installed for all servers of the host (by the setup of a clone); an older one on the
 * search path.
 */
import { access, constants, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { searchPath } from '@torpor/host';
import { MACHINE_WIDE } from '../binaries/build.mjs';
import { dayOf, isRecent, isUsable } from '../binaries/releases.mjs';
import { type RunscVersion, readRunscVersion } from './runsc-version.ts';

export interface RunscSearchPaths {
  /** The program that the operator has configured; when set, no other is considered. */
  readonly runsc?: string | undefined;
  /** The search path; the one of this process when undefined. */
  readonly path?: string;
  readonly dataDir: string;
  /** The directory of programs for all servers of the host, with one directory for each version. */
  readonly machineWide?: string;
}

interface FoundRunsc {
  readonly program: string;
  readonly version: RunscVersion;
}

export type RunscSearch =
  | { readonly found: FoundRunsc }
  | { readonly found: null; readonly why: string; readonly fix: string };

const FIX =
  'type `sudo npm start` in the clone, which fetches one, or put one from gvisor.dev on the PATH of root';

/** When no program is usable, the result says why. */
export async function findRunsc(searchPaths: RunscSearchPaths, signal: AbortSignal): Promise<RunscSearch> {
  const refused: string[] = [];
  const old: FoundRunsc[] = [];
  for (const { program, isKept } of await candidates(searchPaths)) {
    const version = await readRunscVersion(program, signal).catch(() => {
      signal.throwIfAborted();
      return undefined;
    });
    if (version === undefined || !isUsable(version.releaseDate)) {
      refused.push(`${program} ${version === undefined ? 'does not run' : `is too old (${version.name})`}`);
    } else if (isKept || isRecent(version.releaseDate)) {
      return { found: { program, version } };
    } else {
      old.push({ program, version });
    }
  }
  const [first] = old;
  if (first !== undefined) return { found: first };
  const why = refused.length === 0 ? 'runsc is not installed' : refused.join(', ');
  return { found: null, why, fix: FIX };
}

interface Candidate {
  readonly program: string;
  /** Whether the program is used whatever its age: it is configured, or installed by Torpor. */
  readonly isKept: boolean;
}

async function candidates(searchPaths: RunscSearchPaths): Promise<Candidate[]> {
  const { runsc, path = searchPath(), dataDir, machineWide = MACHINE_WIDE } = searchPaths;
  if (runsc !== undefined) return [{ program: runsc, isKept: true }];
  const onPath = path.split(':').filter((directory) => directory !== '');
  const versions = await readdir(machineWide).catch(() => []);
  const all = [
    ...onPath.map((directory) => ({ program: join(directory, 'runsc'), isKept: false })),
    { program: join(dataDir, 'gvisor', 'runsc', 'runsc'), isKept: true },
    ...newestFirst(versions).map((version) => ({
      program: join(machineWide, version, 'runsc'),
      isKept: true,
    })),
  ];
  const present = await Promise.all(
    all.map(async (candidate) => ((await isExecutable(candidate.program)) ? [candidate] : [])),
  );
  return present.flat();
}

/** Compares the days in the names first, then the revisions. */
function newestFirst(versions: readonly string[]): string[] {
  return [...versions].sort(
    (a, b) => (dayOf(b) ?? 0) - (dayOf(a) ?? 0) || b.localeCompare(a, 'en', { numeric: true }),
  );
}

function isExecutable(program: string): Promise<boolean> {
  return access(program, constants.X_OK).then(
    () => true,
    () => false,
  );
}
