import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { viewOf } from '../testing/tree-view.ts';
import type { LayerId } from './layer-id.ts';

/** Changes that sandboxes make over many pauses. Each test checks the stack itself and the merged stack. */
describe.skipIf(REFUSAL !== undefined)(
  `a stack of layers${REFUSAL === undefined ? '' : ` (${REFUSAL})`}`,
  () => {
    let world: LayerWorld;
    let stack: readonly LayerId[];

    beforeEach(async () => {
      world = await makeLayerWorld();
      stack = [
        await world.bottom((files) => {
          fs.mkdirSync(join(files, 'old/deep'), { recursive: true });
          fs.writeFileSync(join(files, 'old/deep/file'), 'from the template');
          fs.writeFileSync(join(files, 'old/other'), 'other');
        }),
      ];
    });
    afterEach(() => world.dispose());

    const grow = async (work: (mount: string) => unknown) => {
      stack = await world.grown(stack, work);
    };
    /** Merges all layers but the template into one, which must show the same files. */
    const merge = async () => {
      const before = await world.shown(stack, (at) => viewOf(at));
      stack = [await world.layers.merge(stack.slice(0, -1)), ...stack.slice(-1)];
      expect(await world.shown(stack, (at) => viewOf(at))).toEqual(before);
    };

    it.for([false, true])(
      'lets an old directory be renamed in every generation (merged in between: %s)',
      async (merges) => {
        let name = 'old';
        for (let generation = 0; generation < 6; generation++) {
          await grow((at) => {
            fs.renameSync(join(at, name), join(at, `name-${generation}`));
            fs.renameSync(join(at, `name-${generation}/deep`), join(at, `deep-${generation}`));
            fs.renameSync(join(at, `deep-${generation}`), join(at, `name-${generation}/deep`));
            fs.appendFileSync(join(at, `name-${generation}/deep/file`), `, ${generation}`);
          });
          name = `name-${generation}`;
          if (merges && generation % 2 === 1) await merge();
        }
        await world.shown(stack, (at) => {
          expect(fs.readdirSync(at)).toEqual(['name-5']);
          expect(fs.readdirSync(join(at, 'name-5')).sort()).toEqual(['deep', 'other']);
          expect(fs.readFileSync(join(at, 'name-5/deep/file'), 'utf8')).toBe(
            'from the template, 0, 1, 2, 3, 4, 5',
          );
        });
      },
    );

    it('keeps deleted entries deleted, and recreated entries new', async () => {
      await grow((at) => fs.rmSync(join(at, 'old/deep'), { recursive: true }));
      await grow((at) => fs.rmSync(join(at, 'old/other')));
      await grow((at) => fs.mkdirSync(join(at, 'old/deep')));
      await grow((at) => fs.writeFileSync(join(at, 'old/deep/new'), 'new'));
      await merge();
      await world.shown(stack, (at) => {
        expect(fs.readdirSync(join(at, 'old'))).toEqual(['deep']);
        expect(fs.readdirSync(join(at, 'old/deep'))).toEqual(['new']);
      });
    });

    it('keeps hard links, times to the nanosecond, owners, modes, holes, fifos and names of bytes', async () => {
      const odd = Buffer.from([0xff, 0x0a, 0x20, 0x5c, 0x80]);
      const long = 'l'.repeat(255);
      await grow((at) => {
        fs.writeFileSync(join(at, 'one'), 'linked');
        fs.linkSync(join(at, 'one'), join(at, 'old/two'));
        fs.chownSync(join(at, 'one'), 1234, 70_000);
        fs.chmodSync(join(at, 'one'), 0o6751);
        fs.writeFileSync(join(at, 'sparse'), 'x');
        fs.truncateSync(join(at, 'sparse'), 50_000_000);
        fs.symlinkSync('nowhere', join(at, 'link'));
        fs.lchownSync(join(at, 'link'), 5, 6);
        execFileSync('mkfifo', [join(at, 'fifo')]);
        fs.writeFileSync(Buffer.concat([Buffer.from(`${at}/`), odd]), 'odd');
        fs.mkdirSync(join(at, long));
        for (const name of ['one', 'link', 'fifo', 'sparse', long]) {
          execFileSync('touch', ['-h', '-d', '2021-03-04 05:06:07.123456789', join(at, name)]);
        }
      });
      await grow((at) => fs.writeFileSync(join(at, long, long), 'deep'));
      await merge();
      await world.shown(stack, (at) => {
        const [one, two] = ['one', 'old/two'].map((name) => fs.lstatSync(join(at, name), { bigint: true }));
        expect(two?.ino).toBe(one?.ino);
        expect([one?.uid, one?.gid, one?.mode]).toEqual([1234n, 70_000n, 0o106751n]);
        expect((one?.mtimeNs ?? 0n) % 1_000_000_000n).toBe(123456789n);
        expect(fs.lstatSync(join(at, 'link'), { bigint: true }).mtimeNs).toBe(one?.mtimeNs);
        const sparse = fs.lstatSync(join(at, 'sparse'));
        expect([sparse.size, sparse.blocks < 100]).toEqual([50_000_000, true]);
        expect(fs.lstatSync(join(at, 'fifo')).isFIFO()).toBe(true);
        expect(fs.readFileSync(join(at, long, long), 'utf8')).toBe('deep');
        expect(fs.readdirSync(at, { encoding: 'buffer' }).some((name) => name.equals(odd))).toBe(true);
      });
    });

    it('is mounted, read and merged at sixty layers', async () => {
      for (let generation = 0; generation < 60; generation++) {
        await grow((at) => {
          fs.appendFileSync(join(at, 'old/other'), `${generation} `);
          fs.writeFileSync(join(at, `file-${generation}`), '');
          if (generation > 0) fs.rmSync(join(at, `file-${generation - 1}`));
        });
      }
      expect(stack).toHaveLength(61);
      await merge();
      expect(stack).toHaveLength(2);
      await world.shown(stack, (at) => {
        expect(fs.readdirSync(at).sort()).toEqual(['file-59', 'old']);
        expect(fs.readFileSync(join(at, 'old/other'), 'utf8')).toMatch(/^other0 1 .* 59 $/);
      });
    }, 120_000);

    it('is merged although it has paths that are longer than the kernel accepts', async () => {
      const step = 'd'.repeat(200);
      const descend =
        'for i in $(seq 30); do mkdir -p "$0" && cd -P "$0" || exit 1; done; echo bottom > file';
      await grow((at) => execFileSync('sh', ['-c', descend, step], { cwd: at }));
      const find = (at: string) =>
        execFileSync('find', ['.', '-printf', '%P %y %m %T@ %s\\n'], { cwd: at, encoding: 'utf8' });
      await grow((at) => fs.writeFileSync(join(at, step, 'near'), ''));
      const before = await world.shown(stack, find);
      expect(before).toContain(`/file f`);
      stack = [await world.layers.merge(stack.slice(0, -1)), ...stack.slice(-1)];
      const strip = (text: string) =>
        text
          .replaceAll(/ d (\d+ [\d.]+) \d+$/gm, ' d $1')
          .split('\n')
          .sort();
      expect(strip(await world.shown(stack, find))).toEqual(strip(before));
      for (const id of stack) await world.layers.verify(id);
    });
  },
);
