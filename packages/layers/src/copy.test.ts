import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { changes, make, plantTree } from '../testing/file-changes.ts';
import { type LayerDisk, type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { loopDiskRefusal } from '../testing/loop-disk.ts';
import { viewOf } from '../testing/tree-view.ts';
import type { LayerId } from './layer-id.ts';

const DISKS: readonly {
  readonly on: string;
  readonly disk: LayerDisk;
  readonly reflinks: boolean;
  readonly why: string | undefined;
}[] = [
  // In memory, because every seal waits for whatever else is being written to the disk.
  { on: 'a file system without reflinks', disk: { tmpfs: 'size=64m' }, reflinks: false, why: REFUSAL },
  { on: 'a file system with reflinks', disk: 'xfs', reflinks: true, why: REFUSAL ?? loopDiskRefusal('xfs') },
];

describe.each(DISKS.map((each) => ({ ...each, what: each.on + (each.why ? ` (${each.why})` : '') })))(
  'a copy of an open layer on $what',
  ({ disk, reflinks, why }) => {
    let world: LayerWorld;
    let template: LayerId;

    beforeEach(async ({ skip }) => {
      if (why !== undefined) return skip(why);
      world = await makeLayerWorld({ disk });
      template = await world.bottom(plantTree);
    });
    afterEach(async () => {
      if (why === undefined) await world.dispose();
    });

    /** Makes changes over the template in a mount, copies the mounted upper, and lets `work` compare. */
    async function copied(
      change: (at: string) => unknown,
      work: (mounted: { readonly at: string; readonly upper: LayerId; readonly copy: LayerId }) => unknown,
    ): Promise<void> {
      const { layers, top } = world;
      const [upper, copy] = [await layers.create(), await layers.create()];
      const at = join(top, `mounted-${upper}`);
      fs.mkdirSync(at);
      await layers.mount(at, [template], upper);
      try {
        change(at);
        await layers.copyInto(copy, upper);
        await layers.seal(copy);
        await work({ at, upper, copy });
      } finally {
        await layers.unmount(at);
        for (const id of [upper, copy]) await layers.remove(id);
      }
    }

    it('shows the same files as the mounted original for any changes, and stays so when the original changes', async () => {
      const property = fc.asyncProperty(changes, changes, async (before, after) => {
        await copied(
          (at) => make(at, before),
          async ({ at, copy }) => {
            const shown = viewOf(at);
            expect(await world.shown([copy, template], (other) => viewOf(other))).toEqual(shown);
            await world.layers.verify(copy);
            make(at, after);
            expect(await world.shown([copy, template], (other) => viewOf(other))).toEqual(shown);
            expect(await world.layers.verify(copy)).toMatchObject({ isFirst: false });
          },
        );
      });
      await fc.assert(property, { seed: 7, numRuns: 12, endOnFailure: true });
    }, 120_000);

    it('keeps times to the nanosecond, attributes, set-user-ID bits, holes and the top directory', async () => {
      await copied(
        (at) => {
          fs.writeFileSync(join(at, 'file'), 'x');
          fs.truncateSync(join(at, 'file'), 400_000);
          fs.chownSync(join(at, 'file'), 1234, 70_000);
          fs.chmodSync(join(at, 'file'), 0o6751);
          execFileSync('setcap', ['cap_net_raw=ep', join(at, 'a/a/b')]);
          fs.renameSync(join(at, 'b'), join(at, 'renamed'));
          fs.rmSync(join(at, 'c'), { recursive: true });
          fs.mkdirSync(join(at, 'c'));
          fs.chmodSync(at, 0o1751);
          execFileSync('touch', ['-d', '2021-03-04 05:06:07.123456789', join(at, 'file'), at]);
        },
        async ({ upper, copy, at }) => {
          const archive = (id: LayerId) =>
            execFileSync(
              'tar',
              [
                ...['--create', '--sort=name', '--xattrs', '--xattrs-include=*', '--format=pax'],
                ...['--pax-option=exthdr.name=x,delete=atime,delete=ctime', '.'],
              ],
              { cwd: world.layers.path(id), encoding: 'latin1' },
            );
          // The order of the attributes of a file is the file system's own.
          const lines = (id: LayerId) => archive(id).split('\n').toSorted().join('\n');
          expect(lines(copy) === lines(upper)).toBe(true);
          for (const mark of ['overlay.opaque', 'overlay.redirect', 'security.capability'])
            expect(archive(copy)).toContain(mark);
          await world.shown([copy, template], (other) => {
            expect(viewOf(other)).toEqual(viewOf(at));
            expect(fs.lstatSync(join(other, 'file')).blocks).toBeLessThan(100);
          });
        },
      );
    });

    it('is refused into a sealed or a mounted layer', async () => {
      const { layers } = world;
      await copied(
        () => {},
        async ({ upper, copy }) => {
          await expect(layers.copyInto(copy, upper)).rejects.toMatchObject({ code: 'conflict' });
          await expect(layers.copyInto(upper, copy)).rejects.toMatchObject({ code: 'conflict' });
        },
      );
    });

    it('says whether it shares blocks with the original, and leaves nothing of the trial behind', async () => {
      const before = fs.readdirSync(world.root);
      expect(await world.layers.sharesBlocks()).toBe(reflinks);
      expect(fs.readdirSync(world.root)).toEqual(before);
    });
  },
);
