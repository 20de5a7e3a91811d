/**
 * Copies of the runsc programs that this data directory uses, in the checkpoint store.
 *
 * A memory image can be restored only by the program that wrote it, and a container is controlled by the program that
 * created it. So each program is kept until nothing refers to it, whatever happens to the original file.
 */
import { copyFile, link, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProgramStore } from '@torpor/layers';
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

/** The files of a program in the store. */
const PROGRAM = 'runsc';
const VERSION = 'version';

export class RunscBinaries {
  readonly #programs: ProgramStore;
  readonly #oldestDay: number;
  readonly #kept = new Map<string, RunscBinary>();
  #current: RunscBinary | undefined;

  /** Programs older than `oldestDay` are not used, not even for the memory images that they wrote. */
  constructor(programs: ProgramStore, oldestDay = 0) {
    this.#programs = programs;
    this.#oldestDay = oldestDay;
  }

  /** Finds the programs that earlier servers have kept, and adopts this one for new sandboxes. */
  async open(current: { readonly program: string; readonly version: string }): Promise<void> {
    for (const digest of await this.#programs.list('runsc')) {
      this.#remember(digest, await readFile(join(this.#directory(digest), VERSION), 'utf8'));
    }
    await this.adopt(current);
  }

  /** The program for new sandboxes. */
  get current(): RunscBinary {
    if (this.#current === undefined) throw new Error('The programs have not been opened.');
    return this.#current;
  }

  /** Finds a program that was put into the store after `open`, for example because it was fetched from another machine. */
  async refresh(digest: string): Promise<void> {
    if (this.#kept.has(digest) || !(await this.#programs.list('runsc')).includes(digest)) return;
    this.#remember(digest, await readFile(join(this.#directory(digest), VERSION), 'utf8'));
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

  /** Removes every program that is neither current nor in use, and that no checkpoint claims. */
  async removeUnused(inUse: ReadonlySet<string>): Promise<void> {
    const used = new Set([...inUse, this.current.digest]);
    for (const digest of await this.#programs.sweep('runsc', used)) this.#kept.delete(digest);
  }

  async #keep(digest: string, program: string, version: string): Promise<RunscBinary> {
    await this.#programs.add({ kind: 'runsc', digest }, async (directory) => {
      await duplicate(program, join(directory, PROGRAM));
      await writeFile(join(directory, VERSION), version);
    });
    return this.#remember(digest, version);
  }

  #remember(digest: string, version: string): RunscBinary {
    const program = join(this.#directory(digest), PROGRAM);
    const binary = { digest, version, releaseDate: dayOf(version), program };
    this.#kept.set(digest, binary);
    return binary;
  }

  #directory(digest: string): string {
    return this.#programs.path({ kind: 'runsc', digest });
  }
}

/** Programs installed by Torpor are never written to again, so a hard link is enough. Others may be overwritten in place. */
async function duplicate(program: string, to: string): Promise<void> {
  const copy = () => copyFile(program, to);
  if (program.startsWith(`${MACHINE_WIDE}/`)) await link(program, to).catch(copy);
  else await copy();
}
