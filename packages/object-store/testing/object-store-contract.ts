/** What every `ObjectStore` must do. A new implementation is one line in `object-store.contract.test.ts`. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../src/object-store.ts';
import { faultOf } from '../src/store-failure.ts';

export interface StoreUnderTest {
  readonly store: ObjectStore;
  /** Makes a store at a place that does not exist. */
  readonly elsewhere: ObjectStore;
  close(): Promise<void>;
}

async function* pieces(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const all = async (bytes: AsyncIterable<Buffer>) => Buffer.concat(await Array.fromAsync(bytes));
const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );

export function objectStoreContract(name: string, open: () => Promise<StoreUnderTest>, skip?: string): void {
  describe.skipIf(skip !== undefined)(`an object store: ${name}${skip ? ` (skipped: ${skip})` : ''}`, () => {
    let world: StoreUnderTest;
    let store: ObjectStore;
    beforeAll(async () => {
      world = await open();
      store = world.store;
    }, 30_000);
    afterAll(() => world.close());

    it.each([
      ['no bytes', 0],
      ['one byte', 1],
      ['more bytes than one piece of an upload has', 9 * 1024 ** 2 + 3],
    ])('returns an object of %s as it was stored, with its size', async (_, size) => {
      const bytes = randomBytes(size);
      const key = `kind/object-${size}`;
      const stored = await store.put(key, pieces(bytes, 1_000_000));
      expect(stored).toEqual({ bytes: size });
      expect(await store.head(key)).toEqual({ bytes: size });
      expect((await all(store.get(key))).equals(bytes)).toBe(true);
    });

    it('stores an object whole that gave way while it was sent', async () => {
      const bytes = randomBytes(9 * 1024 ** 2 + 3);
      const stored = await store.put('kind/gave-way', pieces(bytes, 1_000_000), undefined, async () => {});
      expect(stored.bytes).toBe(bytes.length);
      expect((await all(store.get('kind/gave-way'))).equals(bytes)).toBe(true);
    });

    it('knows nothing of an object that was never stored or was deleted', async () => {
      await store.put('kind/gone', pieces(randomBytes(10), 10));
      await store.delete('kind/gone');
      await store.delete('kind/gone');
      expect(await store.head('kind/gone')).toBeUndefined();
      const failure = await failureOf(all(store.get('kind/gone')));
      expect([faultOf(failure), (failure as { code?: string }).code]).toEqual([
        'missing',
        'checkpoint_missing',
      ]);
    });

    it('lists the objects whose key begins with a prefix, with their sizes', async () => {
      for (const key of ['list/a', 'list/b', 'lists/c']) await store.put(key, pieces(randomBytes(5), 5));
      const listed = await Array.fromAsync(store.list('list/'));
      expect(listed.sort((a, b) => (a.key < b.key ? -1 : 1))).toEqual([
        { key: 'list/a', bytes: 5 },
        { key: 'list/b', bytes: 5 },
      ]);
    });

    it('shows nothing of an upload whose content could not be read', async () => {
      const broken = async function* () {
        yield randomBytes(9 * 1024 ** 2);
        throw new Error('the content broke');
      };
      const failure = await failureOf(store.put('kind/broken', broken()));
      expect((failure as Error).message).toBe('the content broke');
      expect(await store.head('kind/broken')).toBeUndefined();
      await store.delete('kind/broken');
      expect(await Array.fromAsync(store.list('kind/broken'))).toEqual([]);
    });

    it('ends an upload when its caller gives up', async () => {
      const stop = new AbortController();
      const endless = async function* () {
        for (;;) {
          yield randomBytes(1_000_000);
          stop.abort(new Error('given up'));
        }
      };
      const failure = await failureOf(store.put('kind/endless', endless(), stop.signal));
      expect((failure as Error).message).toBe('given up');
      expect(await store.head('kind/endless')).toBeUndefined();
    });

    it.each(['', '/a', 'a/', '../a', 'a/../b', '.partial/a', 'a b', 'a\0'])(
      'refuses the key %j',
      async (key) => {
        expect(await failureOf(store.put(key, pieces(randomBytes(1), 1)))).toMatchObject({
          code: 'invalid_request',
        });
      },
    );

    it('says that its place does not exist, and makes none', async () => {
      const { elsewhere } = world;
      const failures = [
        await failureOf(elsewhere.put('kind/object', pieces(randomBytes(1), 1))),
        await failureOf(Array.fromAsync(elsewhere.list(''))),
        await failureOf(all(elsewhere.get('kind/object'))),
        await failureOf(elsewhere.head('kind/object')),
        await failureOf(elsewhere.delete('kind/object')),
      ];
      expect(failures.map(faultOf)).toEqual(failures.map(() => 'no_bucket'));
      expect(failures[0]).toMatchObject({ code: 'not_found' });
    });
  });
}
