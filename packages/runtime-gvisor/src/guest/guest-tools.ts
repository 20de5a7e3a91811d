/**
 * The programs that every guest gets from Torpor, so that a template needs none of them: Node with its loader and
 * libraries, the agent, an init process, `sudo`. Each version of them is a directory named by the digest of its contents.
 *
 * Memory images map these files. So a directory is never changed once it exists, it stays as long as a checkpoint names
 * it, and the same contents always get the same name and the same timestamps.
 */
import { createHash, randomUUID } from 'node:crypto';
import { constants, createReadStream, readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, open, readdir, rename, utimes, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { errnoOf, isMissing, removeTree } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import { EMPTY_DIRECTORY, EMPTY_FILE, SUDO_DIR, SUDO_SCRIPT, TOOLS } from './layout.ts';
import { type Libraries, librariesOf } from './shared-libraries.ts';

export interface GuestToolsOptions {
  /** The parent of the directories. */
  readonly toolsDir: string;
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

/** The manifest is written last, so that its presence proves that the directory is complete. */
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
const CHUNK = 1024 * 1024;
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

/** Makes the directory when there is none with these contents yet. */
export async function guestTools(options: GuestToolsOptions): Promise<GuestTools> {
  const { toolsDir } = options;
  const parts = await partsOf(options);
  const fingerprint = await fingerprintOf(parts);
  const isThere = (await listGuestTools(toolsDir)).includes(fingerprint);
  if (!isThere) await mapWriteErrors(toolsDir, () => make(toolsDir, fingerprint, parts));
  return openGuestTools(toolsDir, fingerprint);
}

/** The tools that a checkpoint names. Throws `checkpoint_incompatible` when they are no longer kept. */
export async function openGuestTools(toolsDir: string, fingerprint: string): Promise<GuestTools> {
  const directory = join(toolsDir, fingerprint);
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

/** The fingerprints of all tools that are kept. */
export async function listGuestTools(toolsDir: string): Promise<string[]> {
  const names = await readdir(toolsDir).catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
  return names.filter((name) => /^[0-9a-f]{64}$/.test(name)).sort();
}

/** Only for tools that no checkpoint and no running guest uses and no bind mount has as its source. Absent tools are fine. */
export async function removeGuestTools(toolsDir: string, fingerprint: string): Promise<void> {
  await removeTree(join(toolsDir, fingerprint));
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

async function make(toolsDir: string, fingerprint: string, parts: readonly [string, Part][]): Promise<void> {
  const work = join(toolsDir, `.new-${randomUUID()}`);
  try {
    for (const name of DIRECTORIES) await mkdir(join(work, name), { recursive: true, mode: 0o755 });
    for (const [path, part] of parts) {
      const to = join(work, path);
      await mkdir(dirname(to), { recursive: true, mode: 0o755 });
      // Never a hard link to the server's own file: a guest shares no file with the server.
      if ('from' in part) await copyFile(part.from, to, constants.COPYFILE_FICLONE);
      else await writeFile(to, part.text);
    }
    await finalize(work);
    const copied = (await filesIn(work)).map((file): [string, Part] => [file, { from: join(work, file) }]);
    if ((await fingerprintOf(copied)) !== fingerprint) {
      throw new TorporError('conflict', 'The tools of guests changed while they were copied.');
    }
    await publish(work, join(toolsDir, fingerprint));
  } finally {
    await removeTree(work);
  }
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

/** Sets modes and timestamps, and syncs everything to disk. */
async function finalize(work: string): Promise<void> {
  for (const file of await filesIn(work)) {
    const path = join(work, file);
    await chmod(path, PROGRAMS.test(file) ? 0o555 : 0o444);
    await utimes(path, SAME_TIME, SAME_TIME);
    await sync(path);
  }
  for (const directory of await directoriesIn(work)) {
    await chmod(directory, 0o755);
    await utimes(directory, SAME_TIME, SAME_TIME);
    await sync(directory);
  }
}

async function publish(work: string, directory: string): Promise<void> {
  try {
    await rename(work, directory);
  } catch (thrown) {
    // Another server has published the same contents meanwhile.
    if (!['ENOTEMPTY', 'EEXIST'].includes(errnoOf(thrown) ?? '')) throw thrown;
  }
  await sync(join(directory, '..'));
}

async function fingerprintOf(parts: readonly [string, Part][]): Promise<string> {
  const all = createHash('sha256');
  for (const [path, part] of parts.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const hash = createHash('sha256');
    const content = 'from' in part ? createReadStream(part.from, { highWaterMark: CHUNK }) : [part.text];
    for await (const chunk of content) hash.update(chunk);
    all.update(`${path}\0${hash.digest('hex')}\0`);
  }
  return all.digest('hex');
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
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
