/** Layers in a temporary directory. All mounts are removed when the test ends, however it ends. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { hostMountNamespace, parseMounts } from '@torpor/host';
import type { LayerId } from '../src/layer-id.ts';
import type { Layers } from '../src/layers.ts';
import { openOverlayLayers } from '../src/overlay-layers.ts';
import { type LoopDisk, mountLoopDisk } from './loop-disk.ts';

/** Why these tests cannot run here, or undefined when they can. */
export const REFUSAL = refusal();

export interface LayerWorld {
  readonly top: string;
  readonly root: string;
  readonly layers: Layers;
  /** Mounts a new upper over the stack, runs `work` in it, unmounts and seals. Resolves to the stack with that layer on top. */
  grown(below: readonly LayerId[], work: (mount: string) => unknown): Promise<readonly LayerId[]>;
  /** Mounts the stack while `work` runs, with an upper that is removed afterwards. */
  shown<T>(stack: readonly LayerId[], work: (mount: string) => T | Promise<T>): Promise<T>;
  /** Makes a sealed layer without a mount. */
  bottom(fill: (files: string) => unknown): Promise<LayerId>;
  /** Removes everything. Throws when a mount was left. */
  dispose(): Promise<void>;
}

/** A file system for the layers alone: a tmpfs with these mount options, or one in a file. */
export type LayerDisk = { readonly tmpfs: string } | LoopDisk;

export async function makeLayerWorld({ disk }: { readonly disk?: LayerDisk } = {}): Promise<LayerWorld> {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-layers-')));
  const root = join(top, 'layers');
  await mkdir(root);
  if (typeof disk === 'string') mountLoopDisk(disk, join(top, 'disk'), root);
  else if (disk !== undefined) execFileSync('mount', ['-t', 'tmpfs', '-o', disk.tmpfs, 'none', root]);
  const layers = await openOverlayLayers({ root, clock: systemClock, randomBytes });
  let mounts = 0;

  const mounted = async <T>(
    stack: readonly LayerId[],
    upper: LayerId,
    work: (at: string) => T | Promise<T>,
  ) => {
    const at = join(top, `m${mounts++}`);
    await mkdir(at);
    await layers.mount(at, stack, upper);
    try {
      return await work(at);
    } finally {
      await layers.unmount(at);
    }
  };

  return {
    top,
    root,
    layers,
    async grown(below, work) {
      const upper = await layers.create();
      await mounted(below, upper, work);
      await layers.seal(upper);
      return [upper, ...below];
    },
    async shown(stack, work) {
      const upper = await layers.create();
      const result = await mounted(stack, upper, work);
      await layers.remove(upper);
      return result;
    },
    async bottom(fill) {
      const id = await layers.create();
      await fill(layers.path(id));
      await layers.seal(id);
      return id;
    },
    async dispose() {
      const left = parseMounts(hostMountNamespace.mountinfo())
        .filter(({ at }) => at.startsWith(`${top}/`) && at !== root)
        .reverse();
      for (const { at } of left) execFileSync('umount', ['-l', at]);
      if (disk !== undefined) execFileSync('umount', [root]);
      execFileSync('rm', ['-rf', top]);
      if (left.length > 0) throw new Error(`Mounts were left: ${left.map(({ at }) => at).join(', ')}`);
    },
  };
}

function refusal(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root, to mount overlays';
  try {
    const script = 'mount -t tmpfs none /mnt && cd /mnt && mkdir l u w m';
    const mount = 'mount -t overlay -o lowerdir=l,upperdir=u,workdir=w overlay m';
    execFileSync('unshare', ['-m', 'sh', '-c', `${script} && ${mount}`], { stdio: 'pipe' });
    return undefined;
  } catch (thrown) {
    return `needs a kernel that mounts overlays: ${(thrown as Error).message}`;
  }
}
