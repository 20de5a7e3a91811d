/**
 * Gives the files that a sandbox writes to a project of its own, whose quota is the disk limit of the sandbox. Only where the
 * file system of the data directory has project quotas (`project-quotas.ts` of the layers).
 *
 * The upper layer of an instance joins the project before a program of the sandbox runs. A layer keeps its project when it is
 * sealed, and the next upper layer of the sandbox joins the same project. So the kernel counts the whole stack of the sandbox, and
 * `df` inside shows the disk limit as the size. A stack may have layers that other projects count, or none: those of the
 * sandbox that a fork came from, for example. Their size is taken off the limit of the project.
 *
 * A project must not count layers that are not in the stack of its running sandbox, such as those of checkpoints that were
 * left by a rollback. When a project has such layers, the sandbox gets a new project.
 *
 * ```
 * <data dir>/gvisor/projects/<project>.json   the sandbox and the layers of a project
 * ```
 *
 * The records need not survive a power loss: no sandbox does either, and a layer whose project is not known is taken off the
 * limit. A project ends with its last layer or copy.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { exists, forEachBounded, KeyedMutex } from '@torpor/host';
import { billableBytes, type LayerId, type Layers, type ProjectQuotas, type Usage } from '@torpor/layers';
import type { SandboxId } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import type { InstanceRecord } from '../instance/instance-files.ts';
import { diskGraceBytes } from './default-limits.ts';

const MIB = 1024 * 1024;
/** An empty file takes an inode and, on most file systems, a block. */
const ENTRY_BYTES = 4096;
/** How much more than its sealed layers a project may count: directories of overlayfs, and blocks that XFS allocates ahead. */
const TOLERANCE_BYTES = 4 * MIB;
const CALLS_AT_ONCE = 8;

const projectSchema = z.object({
  sandbox: z.custom<SandboxId>((id) => typeof id === 'string'),
  /** What the project counts. */
  layers: z.array(z.custom<LayerId>((id) => typeof id === 'string')),
  /** Copies of layers of the project, which it does not count yet. They join it when the sandbox starts from them. */
  copies: z.array(z.custom<LayerId>((id) => typeof id === 'string')),
});
type ProjectRecord = z.infer<typeof projectSchema>;

/** The layers of an instance. */
type Stack = Pick<InstanceRecord, 'upper' | 'lower'>;

export interface DiskProjectsOptions {
  /** Of the records. */
  readonly directory: string;
  readonly quotas: ProjectQuotas;
  readonly layers: Pick<Layers, 'inspect' | 'path' | 'directories'>;
  readonly newProject: () => number;
}

export class DiskProjects {
  readonly #options: DiskProjectsOptions;
  readonly #projects = new Map<number, ProjectRecord>();
  /** Of the layers that a project counts. */
  readonly #projectOf = new Map<LayerId, number>();
  readonly #projectOfCopy = new Map<LayerId, number>();
  readonly #changes = new KeyedMutex<SandboxId>();
  /** When so many projects are known, those without layers are looked for. */
  #pruneAt = 64;

  constructor(options: DiskProjectsOptions) {
    this.#options = options;
  }

  /** Reads the records of an earlier server, and ends projects that have no layers any more. */
  async open(): Promise<void> {
    const { directory } = this.#options;
    await mapWriteErrors(directory, () => mkdir(directory, { recursive: true, mode: 0o700 }));
    for (const name of await readdir(directory)) {
      const project = Number(/^(\d+)\.json$/.exec(name)?.[1]);
      const record = Number.isNaN(project) ? undefined : await readRecord(join(directory, name));
      if (record === undefined) await rm(join(directory, name), { force: true });
      else this.#set(project, record);
    }
    await this.#pruneAll();
  }

  /** Whether the kernel enforces the limit of the sandbox with this upper layer. */
  isEnforced(upper: LayerId): boolean {
    return this.#projectOf.has(upper);
  }

  /**
   * Enforces the disk limit of an instance. The upper layer is mounted, and no program of the sandbox runs yet: files that
   * the kernel counts for two projects could not be renamed.
   */
  assign(sandbox: SandboxId, stack: Stack, limitBytes: number, signal: AbortSignal): Promise<void> {
    const { quotas, layers } = this.#options;
    return this.#changes.run(sandbox, async () => {
      const project = (await this.#reusable(sandbox, stack, signal)) ?? (await this.#unused(signal));
      const before = this.#projects.get(project) ?? { sandbox, layers: [], copies: [] };
      const own = new Set(ownLayers(stack));
      const joining = before.copies.filter((id) => own.has(id));
      const counted = [...before.layers, ...joining];
      // First, so that a server that crashes here finds the project again.
      await this.#write(project, { ...before, layers: [...before.layers, stack.upper] });
      for (const layer of [stack.upper, ...joining])
        await quotas.assign(project, await layers.directories(layer), signal);
      const [countedUsage, otherUsage] = await this.#sealedUsage(stack, new Set(counted));
      await quotas.limit(project, quotaOf(limitBytes, countedUsage, otherUsage), signal);
      if (joining.length > 0) {
        const copies = before.copies.filter((id) => !own.has(id));
        await this.#write(project, { sandbox, layers: [...counted, stack.upper], copies });
      }
      if (this.#projects.size >= this.#pruneAt) await this.#pruneAll(sandbox);
    });
  }

  /** What counts towards the limit of the instance: the files of the sandbox in all layers above its template. */
  async usedBytes(stack: Stack, signal: AbortSignal): Promise<number | undefined> {
    const project = this.#projectOf.get(stack.upper);
    if (project === undefined) return undefined;
    const counted = new Set(this.#projects.get(project)?.layers);
    const [used, [, others]] = await Promise.all([
      this.#options.quotas.usage(project, signal),
      this.#sealedUsage(stack, counted),
    ]);
    return used.bytes + billableBytes(others);
  }

  /** A copy of an upper layer was sealed. It does not count: the sandbox may go on with the original. */
  copied(upper: LayerId, copy: LayerId): Promise<void> {
    return this.#change(upper, async (project, record) =>
      this.#write(project, { ...record, copies: [...record.copies, copy] }),
    );
  }

  /**
   * Layers were merged into a new one, which has hard links to their files: the project already counts those. Does nothing
   * when it does not count all of the merged layers.
   */
  merged(from: readonly LayerId[], into: LayerId, signal: AbortSignal): Promise<void> {
    return this.#change(from[0], async (project, record) => {
      const counted = new Set(record.layers);
      if (!from.every((id) => counted.has(id))) return;
      const { quotas, layers } = this.#options;
      await quotas.assign(project, await layers.directories(into), signal);
      await this.#write(project, { ...record, layers: [...record.layers, into] });
    });
  }

  /** Ends the projects of the sandbox that have no layers any more. */
  async prune(sandbox: SandboxId): Promise<void> {
    const projects = [...this.#projects].filter(([, record]) => record.sandbox === sandbox);
    if (projects.length === 0) return;
    await this.#changes.run(sandbox, async () => {
      for (const [project] of projects) await this.#prune(project);
    });
  }

  async #change(
    layer: LayerId | undefined,
    work: (project: number, record: ProjectRecord) => Promise<void>,
  ): Promise<void> {
    const project = layer === undefined ? undefined : this.#projectOf.get(layer);
    const sandbox = project === undefined ? undefined : this.#projects.get(project)?.sandbox;
    if (project === undefined || sandbox === undefined) return;
    await this.#changes.run(sandbox, async () => {
      const record = this.#projects.get(project);
      if (record !== undefined) await work(project, record);
    });
  }

  /** The project of the sandbox, when it counts nothing but layers of this stack. */
  async #reusable(sandbox: SandboxId, stack: Stack, signal: AbortSignal): Promise<number | undefined> {
    const own = new Set(ownLayers(stack));
    const project = [...own]
      .map((id) => this.#projectOf.get(id) ?? this.#projectOfCopy.get(id))
      .find((found) => found !== undefined && this.#projects.get(found)?.sandbox === sandbox);
    if (project === undefined) return undefined;
    await this.#prune(project);
    const record = this.#projects.get(project);
    if (record === undefined || !record.layers.every((id) => own.has(id))) return undefined;
    const [counted] = await this.#sealedUsage(stack, new Set(record.layers));
    // Files of removed layers may live on, by hard links in a merged layer.
    const used = await this.#options.quotas.usage(project, signal);
    return used.bytes <= counted.bytes + TOLERANCE_BYTES ? project : undefined;
  }

  /** A project that counts nothing: other servers and people may have projects on the same file system. */
  async #unused(signal: AbortSignal): Promise<number> {
    for (;;) {
      const project = this.#options.newProject();
      if (this.#projects.has(project)) continue;
      const { bytes, entries } = await this.#options.quotas.usage(project, signal);
      if (bytes === 0 && entries === 0) return project;
    }
  }

  /** The usage of the sealed layers of the sandbox: of the layers that the project counts, and of the others. */
  async #sealedUsage({ lower, upper }: Stack, counted: ReadonlySet<LayerId>): Promise<[Usage, Usage]> {
    const [own, others]: [Usage[], Usage[]] = [[], []];
    await forEachBounded(ownLayers({ lower, upper }), CALLS_AT_ONCE, async (id) => {
      (counted.has(id) ? own : others).push(await this.#options.layers.inspect(id));
    });
    return [sum(own), sum(others)];
  }

  async #pruneAll(except?: SandboxId): Promise<void> {
    for (const sandbox of new Set([...this.#projects.values()].map((record) => record.sandbox)))
      if (sandbox !== except) await this.prune(sandbox);
    this.#pruneAt = 2 * Math.max(this.#projects.size, 32);
  }

  /** Forgets layers that are gone, and ends the project with the last of them. */
  async #prune(project: number): Promise<void> {
    const record = this.#projects.get(project);
    if (record === undefined) return;
    const [layers, copies] = [await this.#existing(record.layers), await this.#existing(record.copies)];
    if (layers.length + copies.length > 0) {
      if (layers.length + copies.length < record.layers.length + record.copies.length)
        await this.#write(project, { ...record, layers, copies });
      return;
    }
    await this.#options.quotas.limit(project, null);
    this.#forget(project);
    await rm(this.#pathOf(project), { force: true });
  }

  async #existing(layers: readonly LayerId[]): Promise<LayerId[]> {
    const found: LayerId[] = [];
    for (const layer of layers)
      if (await exists(dirname(this.#options.layers.path(layer)))) found.push(layer);
    return found;
  }

  #set(project: number, record: ProjectRecord): void {
    this.#forget(project);
    for (const layer of record.layers) this.#projectOf.set(layer, project);
    for (const copy of record.copies) this.#projectOfCopy.set(copy, project);
    this.#projects.set(project, record);
  }

  #forget(project: number): void {
    const record = this.#projects.get(project);
    for (const layer of record?.layers ?? []) this.#projectOf.delete(layer);
    for (const copy of record?.copies ?? []) this.#projectOfCopy.delete(copy);
    this.#projects.delete(project);
  }

  async #write(project: number, record: ProjectRecord): Promise<void> {
    this.#set(project, record);
    const path = this.#pathOf(project);
    await mapWriteErrors(path, async () => {
      await writeFile(`${path}.tmp`, JSON.stringify(record), { mode: 0o600 });
      await rename(`${path}.tmp`, path);
    });
  }

  #pathOf(project: number): string {
    return join(this.#options.directory, `${project}.json`);
  }
}

/** The sealed layers above the template, which many sandboxes share. */
function ownLayers({ lower }: Stack): readonly LayerId[] {
  const template = lower.at(-1)?.owner;
  return lower.filter(({ owner }) => owner !== template).map(({ id }) => id);
}

/** What the project may count, of which it counts `counted` already. */
function quotaOf(limitBytes: number, counted: Usage, others: Usage): Usage {
  const grace = diskGraceBytes(limitBytes);
  return {
    bytes: Math.max(limitBytes - billableBytes(others), counted.bytes + grace),
    entries: Math.floor(
      Math.max(limitBytes / ENTRY_BYTES - others.entries, counted.entries + grace / ENTRY_BYTES),
    ),
  };
}

function sum(usages: readonly Usage[]): Usage {
  return usages.reduce(
    (total, { bytes, entries }) => ({ bytes: total.bytes + bytes, entries: total.entries + entries }),
    { bytes: 0, entries: 0 },
  );
}

/** Undefined for a damaged record: its layers are then taken off the limit, like those of other sandboxes. */
async function readRecord(path: string): Promise<ProjectRecord | undefined> {
  try {
    return projectSchema.safeParse(JSON.parse(await readFile(path, 'utf8'))).data;
  } catch {
    return undefined;
  }
}
