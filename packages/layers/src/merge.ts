/**
 * Fills a new layer that replaces several sealed layers.
 *
 * Only directories are made anew. Every other entry gets a hard link in the new layer. A sealed file never changes, so both
 * layers can share it; content, attributes, times, holes and links are the same without a copy. The cost does not depend on
 * the size of the files. The only visible difference is the link count of a file, until the old layers are removed.
 */
import { link, mkdir } from 'node:fs/promises';
import { errnoOf, forEachBounded, programOutput, type TarHeader } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { DeepPaths } from './deep-paths.ts';
import { renamed } from './directory-archive.ts';
import { applyHeaders } from './entry-headers.ts';
import { OPAQUE, type Origin, REDIRECT, readTree } from './layer-tree.ts';
import { type MergeNode, type PlannedEntry, planMerge } from './merge-plan.ts';

const CALLS_AT_ONCE = 32;
/** Two programs read each layer. */
const LAYERS_AT_ONCE = 4;
/** Too many links for the file system, or a target directory of another quota project. */
const CANNOT_LINK: readonly (string | undefined)[] = ['EMLINK', 'EXDEV', 'EPERM'];

interface Merge {
  readonly sources: readonly DeepPaths[];
  readonly target: DeepPaths;
  readonly signal: AbortSignal | undefined;
  /** Files that had to be copied, by layer and inode, with the first path of the copy. */
  readonly copies: Map<string, Promise<Buffer>>;
}

/** `sources` are the file directories of the layers, newest first. `target` must not exist. */
export async function mergeFiles(
  sources: readonly string[],
  target: string,
  signal?: AbortSignal,
): Promise<void> {
  const tops: MergeNode<Origin>[] = [];
  const read = async ([layer, files]: [number, string]) => {
    tops[layer] = await readTree(files, layer, signal);
  };
  await forEachBounded([...sources.entries()], LAYERS_AT_ONCE, read, signal);
  const plan = [...planMerge(tops)];
  const merge: Merge = {
    sources: sources.map((files) => new DeepPaths(files)),
    target: new DeepPaths(target),
    signal,
    copies: new Map(),
  };
  try {
    await fill(merge, plan);
  } finally {
    for (const deepPaths of [...merge.sources, merge.target]) await deepPaths.close();
  }
}

async function fill(merge: Merge, plan: readonly PlannedEntry<Origin>[]): Promise<void> {
  const { target, signal } = merge;
  const directories = plan.filter(({ node }) => node.kind === 'directory');
  for (const level of byDepth(directories)) {
    const make = async ({ path }: PlannedEntry<Origin>) => mkdir(await target.to(path), { mode: 0o700 });
    await forEachBounded(level, CALLS_AT_ONCE, make, signal);
  }
  const others = plan.filter(({ node }) => node.kind !== 'directory');
  await forEachBounded(others, CALLS_AT_ONCE, (planned) => place(merge, planned), signal);
  // Last, because every new entry changes the time of its directory.
  await applyHeaders(directories.map(headerOf), target, signal);
}

function byDepth(directories: readonly PlannedEntry<Origin>[]): PlannedEntry<Origin>[][] {
  const levels: PlannedEntry<Origin>[][] = [];
  for (const planned of directories) {
    const depth = planned.path === '' ? 0 : planned.path.split('/').length;
    levels[depth] ??= [];
    levels[depth]?.push(planned);
  }
  return levels;
}

function headerOf({ path, node, opaque, redirect }: PlannedEntry<Origin>): TarHeader {
  const { header } = node.from;
  if (header === undefined) throw new Error(`tar did not describe ${JSON.stringify(node.from.entry.path)}.`);
  return renamed(header, path, { [OPAQUE]: opaque ? 'y' : null, [REDIRECT]: redirect });
}

async function place(merge: Merge, { path, node }: PlannedEntry<Origin>): Promise<void> {
  const { layer, entry } = node.from;
  const from = await (merge.sources[layer] as DeepPaths).to(entry.path);
  const to = await merge.target.to(path);
  if (!(await isLinked(from, to))) await copy(merge, `${layer}:${entry.inode}`, from, to);
}

/** Of several hard links in a layer the first is copied, and the others are linked to the copy. */
async function copy(merge: Merge, file: string, from: Buffer, to: Buffer): Promise<void> {
  const first = merge.copies.get(file);
  if (first !== undefined && (await isLinked(await first, to))) return;
  const made = copyOne(from, to, merge.signal).then(() => to);
  merge.copies.set(file, made);
  await made;
}

async function isLinked(from: Buffer, to: Buffer): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (thrown) {
    if (CANNOT_LINK.includes(errnoOf(thrown))) return false;
    throw thrown;
  }
}

async function copyOne(from: Buffer, to: Buffer, signal: AbortSignal | undefined): Promise<void> {
  const names = [from.toString(), to.toString()] as const;
  // Arguments of other programs are text.
  if (!Buffer.from(names.join('')).equals(Buffer.concat([from, to]))) {
    throw new TorporError('conflict', `${JSON.stringify(names[0])} cannot be merged: its name is not text.`);
  }
  await programOutput('cp', ['-a', '--reflink=auto', '--sparse=auto', '-T', '--', ...names], { signal });
}
