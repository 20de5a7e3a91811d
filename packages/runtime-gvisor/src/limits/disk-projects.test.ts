/** Which layers the project of a sandbox counts, and which limit it gets. The quotas are kept in memory here. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LayerReference } from '@torpor/engine';
import type { LayerId, ProjectQuotas, SealRecord, Usage } from '@torpor/layers';
import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DiskProjects } from './disk-projects.ts';

const MIB = 1024 * 1024;
const LIMIT = 1000 * MIB;
const SANDBOX: SandboxId = 'sbx_11111111111111111111';
const FORK: SandboxId = 'sbx_22222222222222222222';
const TEMPLATE = reference('template', 'ckpt_template');
const signal = new AbortController().signal;

function layer(name: string): LayerId {
  return `lay_${name}`;
}
function reference(name: string, owner = `ckpt_of_${name}`): LayerReference {
  return { id: layer(name), nonce: '', owner: owner as LayerReference['owner'] };
}
/** A sealed layer of this size in MB above the template. */
function stack(upper: string, ...lower: string[]) {
  return { upper: layer(upper), lower: [...lower.map((name) => reference(name)), TEMPLATE] };
}

describe('the disk project of a sandbox', () => {
  let top: string;
  let projects: DiskProjects;
  let nextProject: number;
  const sizes = new Map<LayerId, number>();
  const members = new Map<LayerId, number>();
  const limits = new Map<number, Usage>();
  const foreign = new Map<number, Usage>();

  /** Counts the sizes of the layers that were given to a project, as the kernel does. */
  const quotas: ProjectQuotas = {
    async assign(project, directories) {
      for (const directory of directories) members.set(directory.split('/').at(-2) as LayerId, project);
    },
    async limit(project, most) {
      if (most === null) limits.delete(project);
      else limits.set(project, most);
    },
    async usage(project) {
      const other = foreign.get(project) ?? { bytes: 0, entries: 0 };
      const own = [...members].filter(([, of]) => of === project).map(([id]) => (sizes.get(id) ?? 0) * MIB);
      return {
        bytes: own.reduce((sum, bytes) => sum + bytes, other.bytes),
        entries: own.length + other.entries,
      };
    },
  };
  const layers = {
    path: (id: LayerId) => join(top, id, 'fs'),
    directories: async (id: LayerId) => [join(top, id, 'fs'), join(top, id, 'work')],
    inspect: async (id: LayerId) => ({ bytes: (sizes.get(id) ?? 0) * MIB, entries: 10 }) as SealRecord,
  };

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-projects-'));
    for (const known of [sizes, members, limits, foreign]) known.clear();
    nextProject = 1;
    await make('template', 5000);
    projects = await opened();
  });
  afterEach(() => rm(top, { recursive: true }));

  async function opened(): Promise<DiskProjects> {
    const opening = new DiskProjects({
      directory: join(top, 'projects'),
      quotas,
      layers,
      newProject: () => nextProject++,
    });
    await opening.open();
    return opening;
  }
  async function make(name: string, megabytes = 0): Promise<void> {
    await mkdir(join(top, layer(name)), { recursive: true });
    sizes.set(layer(name), megabytes);
  }
  async function remove(...names: string[]): Promise<void> {
    for (const name of names) {
      await rm(join(top, layer(name)), { recursive: true });
      members.delete(layer(name));
    }
  }
  /** Starts the sandbox on these sealed layers, has it write, and returns its project. */
  async function grown(sandbox: SandboxId, upper: string, megabytes: number, ...lower: string[]) {
    await make(upper);
    await projects.assign(sandbox, stack(upper, ...lower), LIMIT, signal);
    sizes.set(layer(upper), megabytes);
    return members.get(layer(upper)) ?? 0;
  }
  const records = () => readdir(join(top, 'projects'));

  it('has the disk limit as its quota, in bytes and in entries', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    expect(limits.get(project)).toEqual({ bytes: LIMIT, entries: LIMIT / 4096 });
    expect(await projects.usedBytes(stack('a'), signal)).toBe(100 * MIB);
    expect(projects.isEnforced(layer('a'))).toBe(true);
    expect(projects.isEnforced(layer('template'))).toBe(false);
  });

  it('counts the sealed layers of the sandbox too, and keeps the whole limit', async () => {
    const first = await grown(SANDBOX, 'a', 100);
    const second = await grown(SANDBOX, 'b', 30, 'a');
    expect(second).toBe(first);
    expect(limits.get(second)?.bytes).toBe(LIMIT);
    expect(await projects.usedBytes(stack('b', 'a'), signal)).toBe(130 * MIB);
  });

  it('of a fork is its own; what the fork shares with its source is taken off the limit', async () => {
    const source = await grown(SANDBOX, 'a', 100);
    const fork = await grown(FORK, 'b', 30, 'a');
    expect(fork).not.toBe(source);
    expect(limits.get(fork)).toEqual({ bytes: LIMIT - 100 * MIB, entries: LIMIT / 4096 - 10 });
    expect(await projects.usedBytes(stack('b', 'a'), signal)).toBe(130 * MIB);
    expect(await grown(SANDBOX, 'c', 0, 'a')).toBe(source);
  });

  it('is a new one after a rollback, while layers of the old one exist', async () => {
    const before = await grown(SANDBOX, 'a', 100);
    await grown(SANDBOX, 'b', 30, 'a');
    const after = await grown(SANDBOX, 'c', 0, 'a');
    expect(after).not.toBe(before);
    expect(limits.get(after)?.bytes).toBe(LIMIT - 100 * MIB);
    await remove('b');
    expect(await projects.usedBytes(stack('c', 'a'), signal)).toBe(100 * MIB);
  });

  it('is the same after a rollback when the layers that were left are gone', async () => {
    const before = await grown(SANDBOX, 'a', 100);
    await grown(SANDBOX, 'b', 30, 'a');
    await remove('b');
    expect(await grown(SANDBOX, 'c', 0, 'a')).toBe(before);
    expect(limits.get(before)?.bytes).toBe(LIMIT);
  });

  it('takes a copy of its layer in when the sandbox starts from the copy, and not before', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    await make('copy', 100);
    await projects.copied(layer('a'), layer('copy'));
    expect(await projects.usedBytes(stack('a'), signal)).toBe(100 * MIB);
    await remove('a');
    projects = await opened();
    expect(await grown(FORK, 'f', 0, 'copy')).not.toBe(project);

    expect(await grown(SANDBOX, 'b', 30, 'copy')).toBe(project);
    expect(members.get(layer('copy'))).toBe(project);
    expect(limits.get(project)?.bytes).toBe(LIMIT);
    expect(await projects.usedBytes(stack('b', 'copy'), signal)).toBe(130 * MIB);
  });

  it('counts a merged layer when it counts all layers that were merged', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    await grown(SANDBOX, 'b', 30, 'a');
    await make('merged', 0);
    await projects.merged([layer('b'), layer('a')], layer('merged'), signal);
    expect(members.get(layer('merged'))).toBe(project);
    await grown(FORK, 'f', 1, 'b', 'a');
    await make('other', 0);
    await projects.merged([layer('f'), layer('a')], layer('other'), signal);
    expect(members.has(layer('other'))).toBe(false);
  });

  it('is a new one when files of removed layers still count, by hard links', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    await grown(SANDBOX, 'b', 30, 'a');
    foreign.set(project, { bytes: 50 * MIB, entries: 5 });
    expect(await grown(SANDBOX, 'c', 0, 'b', 'a')).not.toBe(project);
  });

  it('leaves room to clean up when the sealed layers have used up the limit', async () => {
    await grown(SANDBOX, 'a', 1000);
    const project = await grown(SANDBOX, 'b', 0, 'a');
    expect(limits.get(project)?.bytes).toBe(1250 * MIB);
    const fork = await grown(FORK, 'f', 0, 'a');
    expect(limits.get(fork)?.bytes).toBe(250 * MIB);
  });

  it('is none that others use on the same file system', async () => {
    foreign.set(1, { bytes: 0, entries: 1 });
    expect(await grown(SANDBOX, 'a', 100)).toBe(2);
  });

  it('is known to the next server', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    projects = await opened();
    expect(projects.isEnforced(layer('a'))).toBe(true);
    expect(await grown(SANDBOX, 'b', 0, 'a')).toBe(project);
  });

  it('ends with its last layer, now or at the next start', async () => {
    await grown(SANDBOX, 'a', 100);
    await grown(FORK, 'f', 100);
    await remove('a', 'f');
    await projects.prune(SANDBOX);
    expect(await records()).toHaveLength(1);
    projects = await opened();
    expect(await records()).toEqual([]);
    expect(limits.size).toBe(0);
    expect(projects.isEnforced(layer('a'))).toBe(false);
  });

  it('with a damaged record is forgotten: its layers are taken off the limit', async () => {
    const project = await grown(SANDBOX, 'a', 100);
    await writeFile(join(top, 'projects', `${project}.json`), '{"sandbox"');
    projects = await opened();
    const next = await grown(SANDBOX, 'b', 0, 'a');
    expect(next).not.toBe(project);
    expect(limits.get(next)?.bytes).toBe(LIMIT - 100 * MIB);
  });
});
