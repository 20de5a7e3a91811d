/**
 * The programs that every guest gets from Torpor, so that a template needs none of them: Node with its loader and
 * libraries, the agent, an init process, `sudo`. The checkpoint store keeps each version of them under its digest, the
 * fingerprint.
 *
 * Memory images map these files. So a version is never changed once it exists, it stays as long as a checkpoint claims
 * it, and the same contents always get the same fingerprint and the same timestamps.
 */
import { constants, readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, open, readdir, utimes, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { isMissing, type Libraries, librariesOf, sha256Of, sha256OfFile } from '@torpor/host';
import { digestOfTools, type ProgramStore } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { EMPTY_DIRECTORY, EMPTY_FILE, SUDO_DIR, SUDO_SCRIPT, TOOLS } from './layout.ts';

export interface GuestToolsOptions {
  /** Keeps the tools. */
  readonly programs: ProgramStore;
  /** The Node program to copy, `process.execPath` of the server. */
  readonly node: string;
  /** The directory of the agent's bundle. */
  readonly agentDir: string;
  /** The init process: `findTini()`. */
  readonly tini: string;
}

export interface GuestTools {
  readonly fingerprint: string;
  /** On the host; a guest sees it at `/.torpor`. */
  readonly directory: string;
  /** The command that loads a program with the libraries of the tools; the program follows. */
  readonly loader: readonly string[];
  /** The command of the init process; its program follows. */
  readonly init: readonly string[];
  /** Whether guests with these tools are made for set-user-ID programs. */
  readonly setuid: boolean;
}

const manifestSchema = z.object({
  loader: z.string(),
  isInitStatic: z.boolean(),
  /**
   * runsc restores an image only under the process settings that it was written with. Images of tools without this field
   * were written under `noNewPrivileges`.
   */
  setuid: z.boolean().default(false),
});
type Manifest = z.infer<typeof manifestSchema>;

const MANIFEST = 'manifest.json';
/** The timestamp of all files: with the times of the copy, equal contents would look different to a memory image. */
const SAME_TIME = new Date('2020-01-01T00:00:00Z');

const TINI_PLACES = ['/usr/bin/tini-static', '/usr/bin/tini', '/sbin/tini', '/usr/local/bin/tini'];

export async function findTini(places: readonly string[] = TINI_PLACES): Promise<string> {
  for (const place of places) {
    const handle = await open(place).catch(() => undefined);
    if (handle === undefined) continue;
    await handle.close();
    return place;
  }
  throw new TorporError('capability_unsupported', 'tini is not installed: apt-get install tini.');
}

/** Adds the tools to the store when it has none with these contents yet. */
export async function guestTools(options: GuestToolsOptions): Promise<GuestTools> {
  const { programs } = options;
  const parts = await partsOf(options);
  const fingerprint = await fingerprintOf(parts);
  await programs.add({ kind: 'tools', digest: fingerprint }, (directory) => write(directory, parts));
  return openGuestTools(programs, fingerprint);
}

/** The tools that a checkpoint names. Throws `checkpoint_incompatible` when they are no longer kept. */
export async function openGuestTools(programs: ProgramStore, fingerprint: string): Promise<GuestTools> {
  const directory = programs.path({ kind: 'tools', digest: fingerprint });
  try {
    // Synchronous: every start reads it twice, and the thread pool would be slower.
    const manifest = manifestSchema.parse(JSON.parse(readFileSync(join(directory, MANIFEST), 'utf8')));
    const loader = [`${TOOLS}/lib/${manifest.loader}`, '--library-path', `${TOOLS}/lib`];
    const init = [...(manifest.isInitStatic ? [] : loader), `${TOOLS}/tini`, '--'];
    return { fingerprint, directory, loader, init, setuid: manifest.setuid };
  } catch (cause) {
    if (!isMissing(cause)) throw cause;
    throw new TorporError(
      'checkpoint_incompatible',
      'The tools that ran in this sandbox are no longer kept.',
      {
        details: { fingerprint },
        cause,
      },
    );
  }
}

/** A file to copy, or the text of one. */
type Part = { readonly from: string } | { readonly text: string };

/** All files of the tools, by their path in the directory. */
async function partsOf({ node, agentDir, tini }: GuestToolsOptions): Promise<[string, Part][]> {
  const [own, ownInit] = await Promise.all([librariesOf(node), librariesOf(tini)]);
  if (own?.loader === undefined) throw new TorporError('internal', `${node} has no dynamic loader.`);
  const loader = basename(own.loader);
  const agentFiles = await filesIn(agentDir);
  const all = [own, ownInit, ...(await nativeLibraries(agentDir, agentFiles))];
  const libraries = new Set(all.flatMap((each) => each?.libraries ?? []).concat(own.loader));
  const manifest: Manifest = { loader, isInitStatic: ownInit === undefined, setuid: true };
  return [
    ['node', { from: node }],
    ['tini', { from: tini }],
    ...Array.from(libraries, (file): [string, Part] => [`lib/${basename(file)}`, { from: file }]),
    ...agentFiles.map((file): [string, Part] => [`agent/${file}`, { from: join(agentDir, file) }]),
    ['bin/sudo', { text: sudoScript(loader) }],
    // Covers a file of the host that a guest must not see.
    [EMPTY_FILE, { text: '' }],
    [MANIFEST, { text: JSON.stringify(manifest) }],
  ];
}

/** A mount point of guests, and a directory that covers directories which a guest must not see. */
const DIRECTORIES = ['run', EMPTY_DIRECTORY];

async function write(directory: string, parts: readonly [string, Part][]): Promise<void> {
  for (const name of DIRECTORIES) await mkdir(join(directory, name), { mode: 0o755 });
  for (const [path, part] of parts) {
    const to = join(directory, path);
    await mkdir(dirname(to), { recursive: true, mode: 0o755 });
    // Never a hard link to the server's own file: a guest shares no file with the server.
    if ('from' in part) await copyFile(part.from, to, constants.COPYFILE_FICLONE);
    else await writeFile(to, part.text);
  }
  await setModesAndTimes(directory);
}

function nativeLibraries(agentDir: string, files: readonly string[]): Promise<(Libraries | undefined)[]> {
  const native = files.filter((file) => file.endsWith('.node'));
  return Promise.all(native.map((file) => librariesOf(join(agentDir, file))));
}

/**
 * A shell script, because a `#!` line cannot pass the arguments that the loader needs. The caller's NODE_OPTIONS and
 * LD_PRELOAD are meant for the command, and would break sudo itself.
 */
function sudoScript(loader: string): string {
  const node = `${TOOLS}/lib/${loader} --library-path ${TOOLS}/lib ${TOOLS}/node --v8-pool-size=0`;
  return `#!/bin/sh
export TORPOR_SUDO_NODE_OPTIONS="$NODE_OPTIONS"
unset NODE_OPTIONS LD_PRELOAD
exec ${node} ${SUDO_SCRIPT} ${SUDO_DIR} "$@"
`;
}

const PROGRAMS = /^(node|tini|bin\/.*|lib\/.*)$/;

/** The same for the same contents. */
async function setModesAndTimes(top: string): Promise<void> {
  for (const file of await filesIn(top)) {
    const path = join(top, file);
    await chmod(path, PROGRAMS.test(file) ? 0o555 : 0o444);
    await utimes(path, SAME_TIME, SAME_TIME);
  }
  for (const directory of await directoriesIn(top)) {
    await chmod(directory, 0o755);
    await utimes(directory, SAME_TIME, SAME_TIME);
  }
}

async function fingerprintOf(parts: readonly [string, Part][]): Promise<string> {
  const digests: [string, string][] = [];
  for (const [path, part] of parts)
    digests.push([path, 'from' in part ? await sha256OfFile(part.from) : sha256Of(part.text)]);
  return digestOfTools(digests);
}

async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(directory, join(entry.parentPath, entry.name)))
    .sort();
}

/** Deepest first, so that the timestamp of a directory is set after its entries are complete. */
async function directoriesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const below = entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
  return [directory, ...below.sort()].reverse();
}
