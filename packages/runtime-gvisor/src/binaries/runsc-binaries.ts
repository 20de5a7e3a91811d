/**
 * Copies of the runsc programs that this data directory uses, each under the digest of its content.
 *
 * A memory image can be restored only by the program that wrote it, and a container is controlled by the program that
 * created it. So each program is kept here until nothing refers to it, whatever happens to the original file.
 *
 * ```
 * <root>/<digest>/runsc     the program
 *                 version   the version that the program prints
 * ```
 */
import { copyFile, link, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileDurably } from '@torpor/host';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { runscBuild } from '../runsc/runsc-version.ts';
import { MACHINE_WIDE } from './build.mjs';
import { dayOf } from './releases.mjs';

export interface RunscBinary {
  readonly digest: string;
  /** As the program prints it, such as `release-20260701.0`. */
  readonly version: string;
  /** The release date in the version, as YYYYMMDD; null when there is none. */
  readonly releaseDate: number | null;
  readonly program: string;
}

const DIGEST = /^[0-9a-f]{64}$/;

export class RunscBinaries {
  readonly #root: string;
  readonly #oldestDay: number;
  readonly #kept = new Map<string, RunscBinary>();
  #current: RunscBinary | undefined;

  /** Programs older than `oldestDay` are not used, not even for the memory images that they wrote. */
  constructor(root: string, oldestDay = 0) {
    this.#root = root;
    this.#oldestDay = oldestDay;
  }

  /** Finds the programs that earlier servers have kept, and adopts this one for new sandboxes. */
  async open(current: { readonly program: string; readonly version: string }): Promise<void> {
    await mapWriteErrors(this.#root, () => mkdir(this.#root, { recursive: true, mode: 0o700 }));
    for (const digest of (await readdir(this.#root)).filter((name) => DIGEST.test(name))) {
      const version = await readFile(join(this.#root, digest, 'version'), 'utf8').catch(() => undefined);
      // A directory without a version is incomplete.
      if (version === undefined) await rm(join(this.#root, digest), { recursive: true });
      else this.#add(digest, version);
    }
    await this.adopt(current);
  }

  /** The program for new sandboxes. */
  get current(): RunscBinary {
    if (this.#current === undefined) throw new Error('The programs have not been opened.');
    return this.#current;
  }

  /** Why the memory images of a program cannot be restored; undefined when they can. */
  whyUnusable(digest: string): string | undefined {
    const binary = this.#kept.get(digest);
    if (binary === undefined) return 'the runsc that wrote it is no longer kept';
    if ((binary.releaseDate ?? 0) >= this.#oldestDay) return undefined;
    return `the runsc that wrote it (${binary.version}) is older than this server allows`;
  }

  find(digest: string): RunscBinary | undefined {
    return this.whyUnusable(digest) === undefined ? this.#kept.get(digest) : undefined;
  }

  /** New sandboxes use this program from now on. */
  async adopt({
    program,
    version,
  }: {
    readonly program: string;
    readonly version: string;
  }): Promise<RunscBinary> {
    const digest = await runscBuild(program);
    this.#current = this.#kept.get(digest) ?? (await this.#keep(digest, program, version));
    return this.#current;
  }

  /** Removes every program that is neither current nor referred to. */
  async removeUnused(referred: ReadonlySet<string>): Promise<void> {
    for (const digest of this.#kept.keys()) {
      if (digest === this.current.digest || referred.has(digest)) continue;
      this.#kept.delete(digest);
      await rm(join(this.#root, digest), { recursive: true });
    }
  }

  async #keep(digest: string, program: string, version: string): Promise<RunscBinary> {
    const directory = join(this.#root, digest);
    await mapWriteErrors(directory, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const arriving = join(directory, 'arriving');
      await rm(arriving, { force: true });
      await duplicate(program, arriving);
      await syncFile(arriving);
      await rename(arriving, join(directory, 'runsc'));
      // Written last: the version file proves that the program is complete, also after a power failure.
      await writeFileDurably(join(directory, 'version'), version);
    });
    return this.#add(digest, version);
  }

  #add(digest: string, version: string): RunscBinary {
    const binary = {
      digest,
      version,
      releaseDate: dayOf(version),
      program: join(this.#root, digest, 'runsc'),
    };
    this.#kept.set(digest, binary);
    return binary;
  }
}

/** Programs installed by Torpor are never written to again, so a hard link is enough. Others may be overwritten in directory. */
async function duplicate(program: string, to: string): Promise<void> {
  const copy = () => copyFile(program, to);
  if (program.startsWith(`${MACHINE_WIDE}/`)) await link(program, to).catch(copy);
  else await copy();
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
