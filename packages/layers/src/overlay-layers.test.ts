import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import type { LayerId } from './layer-id.ts';
import type { ListedLayer } from './layers.ts';
import { openOverlayLayers } from './overlay-layers.ts';
import { MAX_LAYERS } from './overlay-mount.ts';

const NOBODY: LayerId = 'lay_aaaaaaaaaaaaaaaaaaaa';

describe.skipIf(REFUSAL !== undefined)(
  `layers on overlayfs${REFUSAL === undefined ? '' : ` (${REFUSAL})`}`,
  () => {
    let world: LayerWorld;
    let at: string;

    beforeEach(async () => {
      world = await makeLayerWorld();
      at = join(world.top, 'at');
      fs.mkdirSync(at);
    });
    afterEach(() => world.dispose());

    const written = (name: string) => world.bottom((files) => fs.writeFileSync(join(files, name), name));
    const listed = async () => {
      const found: ListedLayer[] = [];
      for await (const layer of world.layers.list()) found.push(layer);
      return found.sort((a, b) => (a.id < b.id ? -1 : 1));
    };

    describe('mount', () => {
      it('shows the layers, newest first, and writes to the upper alone', async () => {
        const below = await written('below');
        const stack = await world.grown([below], (mount) => fs.writeFileSync(join(mount, 'below'), 'newer'));
        const upper = await world.layers.create();
        await world.layers.mount(at, stack, upper);
        expect(fs.readFileSync(join(at, 'below'), 'utf8')).toBe('newer');
        fs.writeFileSync(join(at, 'above'), 'x');
        expect(await world.layers.mounted()).toEqual([{ at, lower: stack, upper }]);
        expect(await world.layers.unmount(at)).toBe('unmounted');
        expect(fs.readdirSync(world.layers.path(upper))).toEqual(['above']);
        expect(fs.readFileSync(join(world.layers.path(below), 'below'), 'utf8')).toBe('below');
      });

      it('gives a new upper the mode, owner and time of the top below it, and only the first time', async () => {
        const below = await world.bottom((files) => {
          fs.chmodSync(files, 0o1751);
          fs.chownSync(files, 7, 8);
          execFileSync('touch', ['-d', '2020-02-02 02:02:02.123456789', files]);
        });
        const before = fs.lstatSync(world.layers.path(below), { bigint: true });
        const upper = await world.layers.create();
        await world.layers.mount(at, [below], upper);
        const after = fs.lstatSync(at, { bigint: true });
        expect([after.mode, after.uid, after.gid, after.mtimeNs]).toEqual([
          before.mode,
          before.uid,
          before.gid,
          before.mtimeNs,
        ]);
        fs.chmodSync(at, 0o700);
        await world.layers.unmount(at);
        await world.layers.mount(at, [below], upper);
        expect(fs.lstatSync(at).mode & 0o7777).toBe(0o700);
        await world.layers.unmount(at);
      });

      it('changes nothing when the stack is mounted already, and refuses a directory with another mount', async () => {
        const below = await written('below');
        const [upper, other] = [await world.layers.create(), await world.layers.create()];
        await world.layers.mount(at, [below], upper);
        await world.layers.mount(at, [below], upper);
        expect(await world.layers.mounted()).toHaveLength(1);
        expect(await failureOf(world.layers.mount(at, [below], other))).toMatchObject({ code: 'conflict' });
        await world.layers.unmount(at);
      });

      it('refuses an upper that is sealed, or that is mounted elsewhere', async () => {
        const [below, sealed] = [await written('below'), await written('sealed')];
        expect(await failureOf(world.layers.mount(at, [below], sealed))).toMatchObject({ code: 'conflict' });
        const upper = await world.layers.create();
        await world.layers.mount(at, [below], upper);
        const second = join(world.top, 'second');
        fs.mkdirSync(second);
        expect(await failureOf(world.layers.mount(second, [below], upper))).toMatchObject({
          code: 'conflict',
        });
        await world.layers.unmount(at);
      });

      it('refuses a lower layer that is missing, open or damaged', async () => {
        const [open, damaged, upper] = [
          await world.layers.create(),
          await written('x'),
          await world.layers.create(),
        ];
        fs.rmSync(join(world.layers.path(damaged), 'x'));
        expect((await failureOf(world.layers.mount(at, [NOBODY], upper))).code).toBe('checkpoint_missing');
        expect((await failureOf(world.layers.mount(at, [open], upper))).code).toBe('checkpoint_corrupt');
        expect((await failureOf(world.layers.mount(at, [damaged], upper))).code).toBe('checkpoint_corrupt');
        expect(await world.layers.mounted()).toEqual([]);
      });

      it('mounts as many layers as it promises, and refuses more with a clear error', async () => {
        const one = await written('one');
        const stack = [one];
        // Copies of one layer, because only their number matters.
        while (stack.length < MAX_LAYERS) {
          const id = await world.layers.create();
          fs.writeFileSync(join(world.layers.path(id), `from-${stack.length}`), '');
          stack.push(id);
        }
        await world.layers.presync(one);
        for (const id of stack) await world.layers.seal(id);
        const names = await world.shown(stack, (mount) => fs.readdirSync(mount));
        expect(names).toHaveLength(MAX_LAYERS);
        const upper = await world.layers.create();
        const tooMany = [...stack, await written('more')];
        expect(await failureOf(world.layers.mount(at, tooMany, upper))).toMatchObject({
          code: 'conflict',
          message: `A stack of ${MAX_LAYERS + 1} layers cannot be mounted.`,
        });
      }, 120_000);
    });

    describe('unmount', () => {
      it('succeeds when nothing is mounted, also when the directory does not exist', async () => {
        expect(await world.layers.unmount(at)).toBe('absent');
        expect(await world.layers.unmount(join(world.top, 'nowhere'))).toBe('absent');
      });

      it('refuses a mount that stays busy, and detaches it only on request', async () => {
        const [below, upper] = [await written('below'), await world.layers.create()];
        await world.layers.mount(at, [below], upper);
        const held = fs.openSync(join(at, 'held'), 'w');
        try {
          expect(await failureOf(world.layers.unmount(at))).toMatchObject({ code: 'conflict' });
          expect(fs.existsSync(join(at, 'held'))).toBe(true);
          expect(await world.layers.unmount(at, 'detach')).toBe('detached');
          expect(fs.readdirSync(at)).toEqual([]);
        } finally {
          fs.closeSync(held);
        }
      });

      it('waits for a process that releases the mount soon', async () => {
        const [below, upper] = [await written('below'), await world.layers.create()];
        await world.layers.mount(at, [below], upper);
        const held = fs.openSync(join(at, 'held'), 'w');
        const asked: number[] = [];
        const clock = {
          ...systemClock,
          sleep: async (ms: number) => {
            asked.push(ms);
            if (asked.length === 2) fs.closeSync(held);
          },
        };
        const patient = await openOverlayLayers({ root: world.root, clock, randomBytes });
        expect(await patient.unmount(at)).toBe('unmounted');
        expect(asked).toHaveLength(2);
      });
    });

    describe('seal', () => {
      it('counts what is there, and sealing again changes nothing', async () => {
        const id = await world.layers.create();
        fs.writeFileSync(join(world.layers.path(id), 'one'), '12345');
        fs.linkSync(join(world.layers.path(id), 'one'), join(world.layers.path(id), 'two'));
        const record = await world.layers.seal(id);
        expect(record).toMatchObject({ layerId: id, entries: 3 });
        expect(await world.layers.seal(id)).toEqual(record);
        expect(await world.layers.inspect(id, record.nonce)).toEqual(record);
      });

      it('reopen removes the seal unless the layer is a lower layer of a mount; the next seal has a new nonce', async () => {
        const id = await written('x');
        const before = await world.layers.inspect(id);
        await world.layers.reopen(id);
        fs.writeFileSync(join(world.layers.path(id), 'y'), 'more');
        const after = await world.layers.seal(id);
        expect(after.entries).toBe(before.entries + 1);
        const outdated = await failureOf(world.layers.inspect(id, before.nonce));
        expect(outdated).toMatchObject({ code: 'checkpoint_corrupt' });
        await world.shown([id], async () => {
          expect(await failureOf(world.layers.reopen(id))).toMatchObject({ code: 'conflict' });
        });
        expect(await world.layers.inspect(id)).toEqual(after);
      });

      it('a half-written seal record after a crash leaves the layer open', async () => {
        const id = await world.layers.create();
        fs.writeFileSync(join(world.root, id, 'seal.json.tmp'), '{"version":1');
        expect(await listed()).toEqual([{ id, state: 'open' }]);
        await world.layers.seal(id);
        expect(await listed()).toEqual([{ id, state: 'sealed' }]);
      });

      it('throws conflict for a layer that does not exist', async () => {
        expect(await failureOf(world.layers.seal(NOBODY))).toMatchObject({ code: 'conflict' });
      });
    });

    describe('inspect', () => {
      const damage: readonly (readonly [string, string, (layer: string) => unknown])[] = [
        ['the layer is gone', 'checkpoint_missing', (layer) => fs.rmSync(layer, { recursive: true })],
        [
          'its files are gone',
          'checkpoint_missing',
          (layer) => fs.rmSync(join(layer, 'fs'), { recursive: true }),
        ],
        ['its seal is gone', 'checkpoint_corrupt', (layer) => fs.rmSync(join(layer, 'seal.json'))],
        ['its seal is torn', 'checkpoint_corrupt', (layer) => fs.truncateSync(join(layer, 'seal.json'), 40)],
        ['its seal is empty', 'checkpoint_corrupt', (layer) => fs.truncateSync(join(layer, 'seal.json'), 0)],
        ['its seal is a directory', 'checkpoint_corrupt', (layer) => replace(join(layer, 'seal.json'))],
        [
          'something was added at its top',
          'checkpoint_corrupt',
          (layer) => fs.writeFileSync(join(layer, 'fs/y'), ''),
        ],
        ['something was taken from its top', 'checkpoint_corrupt', (layer) => fs.rmSync(join(layer, 'fs/x'))],
      ];
      const replace = (path: string) => {
        fs.rmSync(path);
        fs.mkdirSync(path);
      };

      it.for(damage)('proves that %s: %s', async ([, code, hurt]) => {
        const id = await written('x');
        // The cached seal must not hide the damage.
        await world.layers.inspect(id);
        hurt(join(world.root, id));
        const failure = await failureOf(world.layers.inspect(id));
        expect(failure.code).toBe(code);
        expect(failure.details).toMatchObject({ layerId: id });
      });

      it('refuses a layer that was renamed to another id', async () => {
        const [one, other] = [await written('one'), await written('other')];
        await world.layers.inspect(one);
        await world.layers.inspect(other);
        fs.rmSync(join(world.root, one), { recursive: true });
        fs.renameSync(join(world.root, other), join(world.root, one));
        expect((await failureOf(world.layers.inspect(one))).code).toBe('checkpoint_corrupt');
      });

      it('throws checkpoint_unreadable when the disk does not answer', async () => {
        const id = await written('x');
        const seal = join(world.root, id, 'seal.json');
        // Reading the start of a process's memory is an input/output error.
        execFileSync('mount', ['--bind', `/proc/${process.pid}/mem`, seal]);
        try {
          expect((await failureOf(world.layers.inspect(id))).code).toBe('checkpoint_unreadable');
        } finally {
          execFileSync('umount', [seal]);
        }
        await world.layers.inspect(id);
      });

      it('throws checkpoint_unreadable when the directory of all layers is missing', async () => {
        const id = await written('x');
        fs.renameSync(world.root, `${world.root}-away`);
        expect((await failureOf(world.layers.inspect(id))).code).toBe('checkpoint_unreadable');
        fs.renameSync(`${world.root}-away`, world.root);
      });
    });

    describe('remove', () => {
      it('removes a layer in any state, and succeeds when there is none', async () => {
        const [open, sealed] = [await world.layers.create(), await written('x')];
        for (const id of [open, sealed, sealed, NOBODY]) await world.layers.remove(id);
        expect(fs.readdirSync(world.root)).toEqual([]);
      });

      it('refuses a layer that is mounted, above or below', async () => {
        const [below, upper] = [await written('below'), await world.layers.create()];
        await world.layers.mount(at, [below], upper);
        for (const id of [below, upper]) {
          expect(await failureOf(world.layers.remove(id))).toMatchObject({ code: 'conflict' });
        }
        await world.layers.unmount(at);
        for (const id of [below, upper]) await world.layers.remove(id);
        expect(fs.readdirSync(world.root)).toEqual([]);
      });

      it('finishes a removal that a crash interrupted, also when a layer of that id exists again', async () => {
        const [one, other] = [await written('one'), await written('other')];
        fs.renameSync(join(world.root, one), join(world.root, `removing-${one}`));
        fs.renameSync(join(world.root, other), join(world.root, `removing-${other}`));
        fs.mkdirSync(join(world.root, other));
        expect(await listed()).toContainEqual({ id: one, state: 'removing' });
        expect((await failureOf(world.layers.inspect(one))).code).toBe('checkpoint_missing');
        for (const id of [one, other]) await world.layers.remove(id);
        expect(fs.readdirSync(world.root)).toEqual([]);
      });
    });

    it('lists every layer with its state, and nothing else that lies there', async () => {
      const [open, sealed] = [await world.layers.create(), await written('x')];
      fs.mkdirSync(join(world.root, `making-${NOBODY}`));
      fs.mkdirSync(join(world.root, 'lost+found'));
      const expected: ListedLayer[] = [
        { id: open, state: 'open' },
        { id: sealed, state: 'sealed' },
        { id: NOBODY, state: 'creating' },
      ];
      expect(await listed()).toEqual(expected.sort((a, b) => (a.id < b.id ? -1 : 1)));
    });

    it('measures allocated blocks, each file once', async () => {
      const id = await world.layers.create();
      const files = world.layers.path(id);
      fs.writeFileSync(join(files, 'big'), Buffer.alloc(1 << 20, 1));
      const once = await world.layers.usage(id);
      fs.linkSync(join(files, 'big'), join(files, 'again'));
      fs.truncateSync(join(files, 'big'), 1 << 30);
      const { bytes, entries } = await world.layers.usage(id);
      expect(entries).toBe(once.entries + 1);
      expect(bytes).toBeGreaterThanOrEqual(1 << 20);
      expect(bytes).toBeLessThan(1.1 * (1 << 20));
      expect((await failureOf(world.layers.usage(NOBODY))).code).toBe('checkpoint_missing');
    });

    it('refuses a path for text that is not an id', () => {
      expect(() => world.layers.path('lay_../../etc' as LayerId)).toThrow('not the id of a layer');
    });
  },
);
