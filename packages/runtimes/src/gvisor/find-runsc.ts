/**
 * Where a usable runsc is: on the search path, in the data directory, or in the place where the set-up of a
 * clone puts one for all servers of the machine (scripts/setup/runsc.mjs looks in the same places).
 */
import { access, constants, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { searchPath } from './programs/plain-environment.ts';
import { isNewEnough, type RunscVersion, readRunscVersion } from './runsc-version.ts';

/** Has a directory for each version, with the program in it. */
const MACHINE_WIDE = '/var/lib/torpor/runsc';

export interface RunscPlaces {
  /** As in the environment. */
  readonly path?: string;
  readonly dataDir: string;
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

/** The first that is new enough; else what there is instead. */
export async function findRunsc(places: RunscPlaces, signal: AbortSignal): Promise<RunscSearch> {
  const refused: string[] = [];
  for (const program of await candidates(places)) {
    const version = await readRunscVersion(program, signal).catch(() => {
      signal.throwIfAborted();
      return undefined;
    });
    if (version !== undefined && isNewEnough(version)) return { found: { program, version } };
    refused.push(`${program} ${version === undefined ? 'does not run' : `is too old (${version.name})`}`);
  }
  const why = refused.length === 0 ? 'runsc is not installed' : refused.join(', ');
  return { found: null, why, fix: FIX };
}

async function candidates({ path = searchPath(), dataDir, machineWide = MACHINE_WIDE }: RunscPlaces) {
  const onPath = path.split(':').filter((directory) => directory !== '');
  const versions = await readdir(machineWide).catch(() => []);
  const places = [
    ...onPath.map((directory) => join(directory, 'runsc')),
    join(dataDir, 'gvisor', 'runsc', 'runsc'),
    ...newestFirst(versions).map((version) => join(machineWide, version, 'runsc')),
  ];
  const present = await Promise.all([...new Set(places)].map(executable));
  return present.flat();
}

/** By the numbers in them: dates, then revisions. */
function newestFirst(versions: readonly string[]): string[] {
  return [...versions].sort((one, other) => other.localeCompare(one, 'en', { numeric: true }));
}

async function executable(program: string): Promise<string[]> {
  return access(program, constants.X_OK).then(
    () => [program],
    () => [],
  );
}
