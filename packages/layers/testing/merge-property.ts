/** The property of merging: for any changes in any number of layers, a merged stack shows the same files and behaves the same. */
import fc from 'fast-check';
import { expect } from 'vitest';
import type { LayerId } from '../src/layer-id.ts';
import { changes, make, plantTree } from './file-changes.ts';
import { type LayerDisk, makeLayerWorld } from './layer-world.ts';
import { viewOf } from './tree-view.ts';

const story = fc.record({
  generations: fc.array(changes, { minLength: 2, maxLength: 5 }),
  /** Which layers are merged, as fractions of the stack. */
  from: fc.double({ min: 0, max: 1, noNaN: true }),
  to: fc.double({ min: 0, max: 1, noNaN: true }),
  after: fc.array(changes, { minLength: 1, maxLength: 2 }),
});

export async function checkMerges(
  parameters: fc.Parameters<unknown>,
  options: { readonly disk?: LayerDisk } = {},
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(story, async ({ generations, from, to, after }) => {
      const world = await makeLayerWorld(options);
      try {
        let stack: readonly LayerId[] = [await world.bottom(plantTree)];
        for (const made of generations) stack = await world.grown(stack, (at) => make(at, made));
        for (const id of stack) await world.layers.verify(id);
        const [first, last] = rangeOf(stack.length, from, to);
        const merged = await world.layers.merge(stack.slice(first, last));
        let other: readonly LayerId[] = [...stack.slice(0, first), merged, ...stack.slice(last)];

        const shown = await world.shown(stack, (at) => viewOf(at));
        expect(await world.shown(other, (at) => viewOf(at))).toEqual(shown);

        for (const made of after) {
          const results: string[][] = [];
          stack = await world.grown(stack, (at) => results.push(make(at, made)));
          other = await world.grown(other, (at) => results.push(make(at, made)));
          expect(results[1]).toEqual(results[0]);
          const untimed = (at: string) => viewOf(at, { times: false });
          expect(await world.shown(other, untimed)).toEqual(await world.shown(stack, untimed));
        }
        // Neither the merge nor the changes on top have changed the merged layers.
        for (const id of stack.slice(after.length)) {
          expect(await world.layers.verify(id)).toMatchObject({ isFirst: false });
        }
      } finally {
        await world.dispose();
      }
    }),
    parameters as fc.Parameters<[unknown]>,
  );
}

/** At least two layers; the template at the bottom may be one of them. */
function rangeOf(length: number, from: number, to: number): [first: number, last: number] {
  const first = Math.min(Math.floor(from * (length - 1)), length - 2);
  return [first, Math.min(first + 2 + Math.floor(to * (length - first - 1)), length)];
}
