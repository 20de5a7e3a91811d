/**
 * The programs of a checkpoint store in a local directory: see `ProgramStore` of @torpor/layers.
 *
 * ```
 * <root>/runsc/<digest>/runsc           the program
 *                       version         the version that the program prints
 *        tools/<digest>/…               the guest tools
 *                       manifest.json
 *        <kind>/.new-…, .removing-…     unfinished additions and removals
 * ```
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { mkdir, open, readdir, realpath, rename } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  exists,
  hostMountNamespace,
  isMissing,
  KeyedMutex,
  mountsBelow,
  removeTree,
  sha256OfFile,
  syncDirectory,
} from '@torpor/host';
import { digestOfTools, type ProgramId, type ProgramKind, type ProgramStore } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import { mapReadErrors, mapWriteErrors, type Place } from './storage-error.ts';

interface KindOfProgram {
  /** A directory without this file is incomplete: earlier versions wrote the file last. */
  readonly last: string;
  readonly digestOf: (directory: string) => Promise<string>;
}

const KINDS: Readonly<Record<ProgramKind, KindOfProgram>> = {
  runsc: { last: 'version', digestOf: (directory) => sha256OfFile(join(directory, 'runsc')) },
  tools: { last: 'manifest.json', digestOf: digestOfFilesIn },
};

const DIGEST = /^[0-9a-f]{64}$/;
const UNFINISHED = /^\.(new|removing)-/;

/** The digests of a kind that checkpoints need. Undefined when a claim or a manifest cannot be read. */
export type ClaimedPrograms = (kind: ProgramKind) => Promise<ReadonlySet<string> | undefined>;

export class DirectoryPrograms implements ProgramStore {
  readonly #root: string;
  readonly #claimed: ClaimedPrograms;
  readonly #additions = new KeyedMutex<string>();

  constructor(root: string, claimed: ClaimedPrograms) {
    this.#root = root;
    this.#claimed = claimed;
  }

  path({ kind, digest }: ProgramId): string {
    if (!isDigest(digest)) throw new TorporError('invalid_request', 'This is not the digest of a program.');
    return join(this.#root, kind, digest);
  }

  async list(kind: ProgramKind): Promise<string[]> {
    const digests: string[] = [];
    for (const name of await this.#names(kind)) {
      if (isDigest(name) && (await this.#isComplete({ kind, digest: name }))) digests.push(name);
    }
    return digests.sort();
  }

  add(program: ProgramId, write: (directory: string) => Promise<void>): Promise<void> {
    return this.#additions.run(program.digest, () => this.#add(program, write));
  }

  async #add(program: ProgramId, write: (directory: string) => Promise<void>): Promise<void> {
    const directory = this.path(program);
    if (await this.#isComplete(program)) return;
    const parent = join(this.#root, program.kind);
    const work = join(parent, `.new-${randomUUID()}`);
    await mapWriteErrors(placeOf(directory), directory, async () => {
      try {
        await mkdir(work, { recursive: true, mode: 0o700 });
        await write(work);
        if ((await KINDS[program.kind].digestOf(work)) !== program.digest) throw changedMeanwhile(program);
        await syncTree(work);
        // Left by an earlier version that was killed while it wrote here.
        await removeTree(directory);
        await rename(work, directory);
        await syncDirectory(parent);
      } finally {
        await removeTree(work);
      }
    });
  }

  async verify(program: ProgramId): Promise<void> {
    const directory = this.path(program);
    if (!(await this.#isComplete(program))) throw faulty('checkpoint_missing', program, directory);
    const digest = await mapReadErrors(placeOf(directory), () => KINDS[program.kind].digestOf(directory));
    if (digest !== program.digest) throw faulty('checkpoint_corrupt', program, directory);
  }

  async sweep(kind: ProgramKind, inUse: ReadonlySet<string>): Promise<readonly string[]> {
    const removed: string[] = [];
    let claimed: ReturnType<ClaimedPrograms> | undefined;
    const isNeeded = async (digest: string) => {
      if (inUse.has(digest)) return true;
      if (!(await this.#isComplete({ kind, digest }))) return false;
      claimed ??= this.#claimed(kind);
      return (await claimed)?.has(digest) !== false;
    };
    for (const name of await this.#names(kind)) {
      const isUnused = isDigest(name) && !(await isNeeded(name));
      if (!isUnused && !UNFINISHED.test(name)) continue;
      if ((await this.#remove(kind, name)) && isUnused) removed.push(name);
    }
    return removed;
  }

  /** Moved away in one step, then deleted. False when something is mounted below: deleting would reach into that mount. */
  async #remove(kind: ProgramKind, name: string): Promise<boolean> {
    const parent = await realpath(join(this.#root, kind));
    const [directory, removing] = [join(parent, name), join(parent, `.removing-${randomUUID()}`)];
    if (mountsBelow(hostMountNamespace.mountinfo(), directory).length > 0) return false;
    await mapWriteErrors(placeOf(directory), directory, async () => {
      await rename(directory, removing);
      await syncDirectory(parent);
      await removeTree(removing);
    });
    return true;
  }

  #isComplete(program: ProgramId): Promise<boolean> {
    const directory = this.path(program);
    return mapReadErrors(placeOf(directory), () => exists(join(directory, KINDS[program.kind].last)));
  }

  async #names(kind: ProgramKind): Promise<string[]> {
    const parent = join(this.#root, kind);
    return readdir(parent).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      return mapReadErrors(placeOf(parent), () => Promise.reject(thrown));
    });
  }
}

export function isDigest(value: unknown): value is string {
  return typeof value === 'string' && DIGEST.test(value);
}

async function digestOfFilesIn(directory: string): Promise<string> {
  const digests: [string, string][] = [];
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    digests.push([relative(directory, path), await sha256OfFile(path)]);
  }
  return digestOfTools(digests);
}

async function syncTree(top: string): Promise<void> {
  for (const entry of await readdir(top, { recursive: true, withFileTypes: true })) {
    if (entry.isFile() || entry.isDirectory()) await sync(join(entry.parentPath, entry.name));
  }
  await sync(top);
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function placeOf(directory: string): Place {
  return { location: pathToFileURL(directory).href };
}

function nameOf({ kind, digest }: ProgramId): string {
  return `${kind}/${digest.slice(0, 12)}`;
}

function changedMeanwhile(program: ProgramId): TorporError {
  return new TorporError('conflict', `Program ${nameOf(program)} changed while it was copied.`);
}

function faulty(
  code: 'checkpoint_missing' | 'checkpoint_corrupt',
  program: ProgramId,
  directory: string,
): TorporError {
  const fault = code === 'checkpoint_missing' ? 'is missing from the checkpoint store' : 'is damaged';
  return new TorporError(code, `Program ${nameOf(program)} ${fault}.`, {
    details: { location: placeOf(directory).location, program: `${program.kind}/${program.digest}` },
  });
}
