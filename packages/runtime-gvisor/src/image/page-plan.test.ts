import { hash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DIGEST_BYTES, KnownPages, type PagePlan, planPages } from './page-plan.ts';

/** Pages with these numbers: equal numbers are equal pages. */
const digestsOf = (pages: readonly number[]) =>
  Buffer.concat(pages.map((page) => hash('sha256', String(page), 'buffer').subarray(0, DIGEST_BYTES)));

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, index) => from + index);

/** The pages that a wake would put together. */
function assembled(
  plan: PagePlan,
  image: readonly number[],
  below: readonly (readonly number[])[],
): number[] {
  const own = plan.own.map((page) => image[page]);
  const layers = [own, ...plan.layers.map((layer) => below[layer] ?? [])];
  return plan.runs.flatMap(({ layer, first, count }) =>
    (layers[layer] ?? []).slice(first, first + count).map(Number),
  );
}

const plan = (image: readonly number[], below: readonly (readonly number[])[]) =>
  KnownPages.of(below.map(digestsOf)).then((known) => planPages(digestsOf(image), known));

describe('the plan of the pages of a memory image', () => {
  it('stores every page of the first image', async () => {
    expect(await plan(numbers(0, 5), [])).toEqual({
      layers: [],
      runs: [{ layer: 0, first: 0, count: 5 }],
      own: [0, 1, 2, 3, 4],
    });
  });

  it('stores only the pages that are new, wherever the others have moved', async () => {
    expect(await plan([9, ...numbers(0, 4), 8, ...numbers(4, 4)], [numbers(0, 8)])).toEqual({
      layers: [0],
      runs: [
        { layer: 0, first: 0, count: 1 },
        { layer: 1, first: 0, count: 4 },
        { layer: 0, first: 1, count: 1 },
        { layer: 1, first: 4, count: 4 },
      ],
      own: [0, 5],
    });
  });

  it('takes equal pages in a row from where the pages beside them are', async () => {
    const zeros = [0, 0, 0];
    expect((await plan([1, ...zeros, 2], [[...zeros, 1, ...zeros, 2]])).runs).toEqual([
      { layer: 1, first: 3, count: 5 },
    ]);
  });

  it('gives up a layer of which little is used, and stores those pages again', async () => {
    const old = numbers(0, 100);
    const few = await plan(numbers(90, 20), [old]);
    expect(few.layers).toEqual([]);
    expect(few.own).toHaveLength(20);
    expect((await plan(numbers(70, 50), [old])).layers).toEqual([0]);
  });

  it('keeps a bounded number of layers, those of which most is used', async () => {
    const below = numbers(0, 20).map((layer) => numbers(layer * 100, layer + 1));
    const image = below.flat();
    const { layers, own } = await plan(image, below);
    expect(layers).toEqual(numbers(13, 7));
    expect(own).toHaveLength(numbers(1, 13).reduce((sum, pages) => sum + pages, 0));
  });

  it('puts every image together again', async () => {
    const pages = fc.array(fc.nat(40), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(pages, fc.array(pages, { maxLength: 12 }), async (image, below) => {
        const made = await plan(image, below);
        expect(assembled(made, image, below)).toEqual(image);
        expect(made.layers.length).toBeLessThanOrEqual(7);
      }),
    );
  });
});
