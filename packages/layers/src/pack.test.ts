import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { viewOf } from '../testing/tree-view.ts';
import type { LayerId } from './layer-id.ts';

describe.skipIf(REFUSAL !== undefined)(
  `pack and unpack${REFUSAL === undefined ? '' : ` (${REFUSAL})`}`,
  () => {
    let world: LayerWorld;
    let other: LayerWorld;
    let stack: readonly LayerId[];

    beforeEach(async () => {
      [world, other] = [await makeLayerWorld(), await makeLayerWorld()];
      stack = [
        await world.bottom((files) => {
          fs.mkdirSync(join(files, 'old'));
          fs.writeFileSync(join(files, 'old/file'), 'template');
          fs.mkdirSync(join(files, 'again'));
          fs.writeFileSync(join(files, 'again/hidden'), '');
        }),
      ];
      stack = await world.grown(stack, (at) => {
        fs.renameSync(join(at, 'old'), join(at, 'new'));
        fs.rmSync(join(at, 'again'), { recursive: true });
        fs.mkdirSync(join(at, 'again'));
        fs.writeFileSync(join(at, 'one'), 'linked', { mode: 0o640 });
        fs.linkSync(join(at, 'one'), join(at, 'two'));
        fs.chownSync(join(at, 'one'), 1234, 70_000);
        fs.writeFileSync(join(at, 'sparse'), 'x');
        fs.truncateSync(join(at, 'sparse'), 50_000_000);
        fs.symlinkSync('one', join(at, 'link'));
        execFileSync('mkfifo', [join(at, 'fifo')]);
        fs.writeFileSync(Buffer.concat([Buffer.from(`${at}/`), Buffer.from([0xff, 0x0a, 0x5c])]), 'odd');
        fs.mkdirSync(join(at, 'l'.repeat(255), 'm'.repeat(255)), { recursive: true });
        execFileSync('touch', [
          '-h',
          '-d',
          '2021-03-04 05:06:07.123456789',
          join(at, 'one'),
          join(at, 'link'),
        ]);
      });
    });
    afterEach(async () => {
      await world.dispose();
      await other.dispose();
    });

    const top = () => stack[0] as LayerId;

    it('moves layers to another place without a difference', async () => {
      for (const id of stack) await world.layers.verify(id);
      for (const id of stack) {
        const record = await other.layers.unpack(id, world.layers.pack(id));
        expect(record).toEqual(await world.layers.inspect(id));
        // Compares with the record that the original layer had.
        expect(await other.layers.verify(id)).toMatchObject({ isFirst: false });
      }
      const before = await world.shown(stack, (at) => viewOf(at));
      expect(await other.shown(stack, (at) => viewOf(at))).toEqual(before);
      expect((await other.layers.usage(top())).bytes).toBeLessThan(1_000_000);
      // The marks of overlayfs work in the other place too.
      const grown = await other.grown(stack, (at) => fs.renameSync(join(at, 'new'), join(at, 'newer')));
      expect(await other.shown(grown, (at) => fs.readFileSync(join(at, 'newer/file'), 'utf8'))).toBe(
        'template',
      );
    });

    it('does not change a layer that exists already', async () => {
      await other.layers.unpack(top(), world.layers.pack(top()));
      const unread = Readable.from([Buffer.from('nonsense')]);
      expect(await other.layers.unpack(top(), unread)).toEqual(await world.layers.inspect(top()));
    });

    it.for([
      ['at once', () => 512],
      ['in the middle', (whole: Buffer) => Math.floor(whole.lastIndexOf('./PaxHeaders') / 1024) * 512],
      ['just before the seal', (whole: Buffer) => whole.lastIndexOf('./PaxHeaders')],
    ] as const)('leaves nothing of a stream that was cut short %s', async ([, cut]) => {
      const whole = await buffer(world.layers.pack(top()));
      expect(cut(whole)).toBeGreaterThan(0);
      await failureOf(other.layers.unpack(top(), Readable.from([whole.subarray(0, cut(whole))])));
      expect(fs.readdirSync(other.root)).toEqual([]);
    });

    it('leaves nothing behind when the stream fails, and reports why', async () => {
      const whole = await buffer(world.layers.pack(top()));
      const failing = Readable.from(
        (async function* () {
          yield whole.subarray(0, 8192);
          throw new Error('the line went dead');
        })(),
      );
      await expect(other.layers.unpack(top(), failing)).rejects.toThrow('the line went dead');
      expect(fs.readdirSync(other.root)).toEqual([]);
    });

    it('refuses another layer under this id', async () => {
      const bottom = stack[1] as LayerId;
      const failure = await failureOf(other.layers.unpack(bottom, world.layers.pack(top())));
      expect(failure.code).toBe('checkpoint_corrupt');
      expect(fs.readdirSync(other.root)).toEqual([]);
    });

    it('throws storage_full when there is no space', async () => {
      const big = await world.bottom((files) =>
        fs.writeFileSync(join(files, 'big'), Buffer.alloc(1 << 23, 1)),
      );
      const small = await makeLayerWorld({ disk: { tmpfs: 'size=1m' } });
      try {
        const failure = await failureOf(small.layers.unpack(big, world.layers.pack(big)));
        expect(failure.code).toBe('storage_full');
        expect(fs.readdirSync(small.root)).toEqual([]);
      } finally {
        await small.dispose();
      }
    });

    it('fails the stream when the layer is missing, and stops tar when the reader stops', async () => {
      expect((await failureOf(buffer(world.layers.pack('lay_aaaaaaaaaaaaaaaaaaaa')))).code).toBe(
        'checkpoint_missing',
      );
      const stream = world.layers.pack(top());
      for await (const _ of stream) break;
      expect(stream.destroyed).toBe(true);
    });
  },
);
