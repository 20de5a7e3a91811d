/**
 * Which system directories of the host the guests of `base` see, read-only, and which parts of them are covered.
 *
 * Guests read files with the rights of the host's root. So every file that is not world-readable is covered, and so are
 * directories under /usr that hold settings or work of the host's users.
 */
import { lstatSync, readlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { EMPTY_DIRECTORY, EMPTY_FILE, type GuestBind } from './layout.ts';

/** Top directories that are links into /usr on most hosts, and real directories on some. */
const TOP = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/** Some of these hold tokens for registries and proxies; no program needs them to run. */
const HIDDEN = [
  '/usr/etc',
  '/usr/home',
  '/usr/src',
  '/usr/local/etc',
  '/usr/local/home',
  '/usr/local/src',
  '/usr/local/var',
];

/** Each mount takes an open file of the sandbox's kernel, which does not start with more than about 240 of them. */
const MOST_COVERED = 128;

/** The links that choose between equivalent programs must match the programs of the host. */
const ALTERNATIVES = '/etc/alternatives';

export interface SystemDirectories {
  /** Directories of the host that are bind-mounted at the same path. */
  readonly bound: readonly string[];
  /** Links at the top of the root. */
  readonly links: readonly { readonly path: string; readonly target: string }[];
}

/** Synchronous: every start waits for it, and the kernel answers from memory. */
export function systemDirectories(host = '/'): SystemDirectories {
  const bound = ['/usr'];
  const links: { path: string; target: string }[] = [];
  for (const name of TOP) {
    const found = kindOf(join(host, name));
    if (found === 'directory') bound.push(`/${name}`);
    if (found === 'link') links.push({ path: `/${name}`, target: readlinkSync(join(host, name)) });
  }
  if (kindOf(join(host, ALTERNATIVES)) === 'directory') bound.push(ALTERNATIVES);
  return { bound, links };
}

export interface CoveredPaths {
  readonly directories: readonly string[];
  readonly files: readonly string[];
}

/** Reads every directory, so it is called once for each fingerprint of the system, not at every start. */
export async function coveredPaths({ bound }: SystemDirectories): Promise<CoveredPaths> {
  const hidden: string[] = [];
  for (const path of HIDDEN) if (kindOf(path) === 'directory') hidden.push(path);
  const found = await unreadable(bound);
  const isHidden = (path: string) => hidden.some((above) => path === above || path.startsWith(`${above}/`));
  const { directories, files } = fewEnough(
    {
      directories: hidden.concat(found.directories.filter((path) => !isHidden(path))),
      files: found.files.filter((path) => !isHidden(path)),
    },
    bound,
  );
  return { directories: directories.toSorted(), files: files.toSorted() };
}

/** Where too many paths would be covered, covers the directories with the most of the files as a whole. */
function fewEnough(covered: CoveredPaths, bound: readonly string[]): CoveredPaths {
  const byDirectory = [...Map.groupBy(covered.files, (path) => dirname(path))]
    .filter(([directory, files]) => files.length > 1 && !bound.includes(directory))
    .sort(([, some], [, others]) => others.length - some.length);
  let { directories, files } = covered;
  for (const [directory] of byDirectory) {
    if (directories.length + files.length <= MOST_COVERED) break;
    const isOutside = (path: string) => !path.startsWith(`${directory}/`);
    directories = [...directories.filter(isOutside), directory];
    files = files.filter(isOutside);
  }
  return { directories, files };
}

export interface BindSources {
  /** The read-only mount of each bound directory. */
  readonly bound: ReadonlyMap<string, string>;
  /** The read-only mount of the tools. */
  readonly tools: string;
  readonly hasSudo: boolean;
}

/** All bind mounts of a guest of `base`, in an order in which each mount point exists when it is needed. */
export function systemBinds(sources: BindSources, { directories, files }: CoveredPaths): GuestBind[] {
  const emptyDirectory = join(sources.tools, EMPTY_DIRECTORY);
  const emptyFile = join(sources.tools, EMPTY_FILE);
  return [
    ...Array.from(sources.bound, ([destination, source]) => ({ source, destination })),
    ...directories.map((destination) => ({ source: emptyDirectory, destination })),
    ...files.map((destination) => ({ source: emptyFile, destination })),
    // The host's sudo does not work in a guest; scripts that call it by its full path get Torpor's.
    ...(sources.hasSudo ? [{ source: join(sources.tools, 'bin/sudo'), destination: HOST_SUDO }] : []),
  ];
}

const HOST_SUDO = '/usr/bin/sudo';

export function hostHasSudo(): boolean {
  return kindOf(HOST_SUDO) === 'file';
}

async function unreadable(tops: readonly string[]): Promise<CoveredPaths> {
  const directories = ['-type', 'd', '(', '!', '-perm', '-o+r', '-o', '!', '-perm', '-o+x', ')'];
  const files = ['!', '-type', 'd', '!', '-type', 'l', '!', '-perm', '-o+r'];
  const expression = ['(', ...directories, '-prune', '-printf', 'd%p\\0', ')', '-o', '(', ...files];
  const args = [...tops, '-ignore_readdir_race', '-xdev', ...expression, '-printf', 'f%p\\0', ')'];
  const listing = await programOutput('find', args).catch((cause) => {
    throw new TorporError('internal', 'The files of the host that guests must not see cannot be listed.', {
      cause,
    });
  });
  const lines = listing.split('\0').filter(Boolean).map(nameable);
  const starting = (letter: string) => [
    ...new Set(lines.filter((line) => line.startsWith(letter)).map((line) => line.slice(1))),
  ];
  return { directories: starting('d'), files: starting('f') };
}

/** A name that is not valid UTF-8 cannot be written into a configuration: then its directory is covered instead. */
function nameable(line: string): string {
  const bad = line.split('/').findIndex((name) => name.includes('\ufffd'));
  return bad === -1 ? line : `d${line.slice(1).split('/').slice(0, bad).join('/')}`;
}

function kindOf(path: string): 'directory' | 'link' | 'file' | 'none' {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return 'none';
  if (found.isSymbolicLink()) return 'link';
  return found.isDirectory() ? 'directory' : 'file';
}
