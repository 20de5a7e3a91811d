/**
 * What of this machine's system the guests of `base` see, read-only, and what of it they must not.
 *
 * Files are read with the rights of root, so everything that not everybody on this machine may read is
 * covered up, and so are the places under /usr that hold settings or work of this machine's people.
 */
import { execFile } from 'node:child_process';
import { lstatSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TorporError } from '@torpor/protocol';
import { EMPTY_DIRECTORY, EMPTY_FILE, type GuestBind } from './layout.ts';

const run = promisify(execFile);

/** Directories at the top that are links into /usr on most machines, and real ones on some. */
const TOP = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/** Tokens for registries and proxies stand in some of these; none is needed to run a program. */
const HIDDEN = [
  '/usr/etc',
  '/usr/home',
  '/usr/src',
  '/usr/local/etc',
  '/usr/local/home',
  '/usr/local/src',
  '/usr/local/var',
];

/** The choice between programs that do the same has to fit the programs that are there. */
const ALTERNATIVES = '/etc/alternatives';

const MAX_LIST_BYTES = 64 * 1024 * 1024;

export interface SystemDirectories {
  /** Directories of this machine that are bound where they are. */
  readonly bound: readonly string[];
  /** Links at the top of the root. */
  readonly links: readonly { readonly path: string; readonly target: string }[];
}

/** In place, as everything that each start waits for and the kernel answers from memory. */
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

export interface Covered {
  readonly directories: readonly string[];
  readonly files: readonly string[];
}

/** Looks at every file, so once for each fingerprint of the system, not at every start. */
export async function coveredPaths({ bound }: SystemDirectories): Promise<Covered> {
  const hidden: string[] = [];
  for (const path of HIDDEN) if (kindOf(path) === 'directory') hidden.push(path);
  const found = await unreadable(bound);
  const isHidden = (path: string) => hidden.some((above) => path === above || path.startsWith(`${above}/`));
  return {
    directories: hidden.concat(found.directories.filter((path) => !isHidden(path))).sort(),
    files: found.files.filter((path) => !isHidden(path)).sort(),
  };
}

export interface BindSources {
  /** Where each of the bound directories can only be read. */
  readonly bound: ReadonlyMap<string, string>;
  /** And the tools. */
  readonly tools: string;
  readonly hasSudo: boolean;
}

/** Everything a guest of `base` has from this machine, in an order in which each finds the place it goes to. */
export function systemBinds(sources: BindSources, { directories, files }: Covered): GuestBind[] {
  const emptyDirectory = join(sources.tools, EMPTY_DIRECTORY);
  const emptyFile = join(sources.tools, EMPTY_FILE);
  return [
    ...Array.from(sources.bound, ([destination, source]) => ({ source, destination })),
    ...directories.map((destination) => ({ source: emptyDirectory, destination })),
    ...files.map((destination) => ({ source: emptyFile, destination })),
    // The machine's own cannot work in a guest; scripts that name it by its full path get ours.
    ...(sources.hasSudo ? [{ source: join(sources.tools, 'bin/sudo'), destination: MACHINE_SUDO }] : []),
  ];
}

const MACHINE_SUDO = '/usr/bin/sudo';

export function machineHasSudo(): boolean {
  return kindOf(MACHINE_SUDO) === 'file';
}

async function unreadable(tops: readonly string[]): Promise<Covered> {
  const directories = ['-type', 'd', '(', '!', '-perm', '-o+r', '-o', '!', '-perm', '-o+x', ')'];
  const files = ['!', '-type', 'd', '!', '-type', 'l', '!', '-perm', '-o+r'];
  const expression = ['(', ...directories, '-prune', '-printf', 'd%p\\0', ')', '-o', '(', ...files];
  const args = [...tops, '-ignore_readdir_race', '-xdev', ...expression, '-printf', 'f%p\\0', ')'];
  const { stdout } = await run('find', args, { maxBuffer: MAX_LIST_BYTES }).catch((cause) => {
    throw new TorporError('internal', 'The files of this machine that guests must not see cannot be found.', {
      cause,
    });
  });
  const lines = stdout.split('\0').filter(Boolean).map(nameable);
  const starting = (letter: string) => [
    ...new Set(lines.filter((line) => line.startsWith(letter)).map((line) => line.slice(1))),
  ];
  return { directories: starting('d'), files: starting('f') };
}

/** What has a name that is no text cannot be named in a configuration: then the directory it is in goes too. */
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
