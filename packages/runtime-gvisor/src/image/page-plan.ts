/**
 * Decides which pages of a memory image a checkpoint stores itself, and which it takes from the page layers of earlier
 * checkpoints. Works on digests alone.
 *
 * Between two pauses most pages of a sandbox stay the same, and many equal those of the template. But they move: the files that
 * runsc writes have no fixed place for a page. So pages are found by their digests.
 */
import { randomInt } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';

export const PAGE_BYTES = 4096;
/** Of the SHA-256 of a page. A guest that found two pages with equal digests could only damage its own memory. */
export const DIGEST_BYTES = 16;

/** The most layers below the own one. More would make a wake open more files, and keep more old layers. */
const MOST_LAYERS = 7;
/** A layer of which less is used is not kept for that rest. So the layers of an image take at most four times its size. */
const LEAST_USED = 1 / 4;

/** Consecutive pages of an image that are consecutive pages of one layer. */
export interface PageRun {
  /** 0 is the own layer of the checkpoint, the others are those of `PagePlan.layers`. */
  readonly layer: number;
  /** The first page in the layer. */
  readonly first: number;
  readonly count: number;
}

export interface PagePlan {
  /** Indexes of the layers below that the image needs. */
  readonly layers: readonly number[];
  /** The whole image, page after page. */
  readonly runs: readonly PageRun[];
  /** The pages of the image that the own layer has, ascending. */
  readonly own: readonly number[];
}

/** `image` has the digests of all its pages, one after the other. */
export async function planPages(image: Buffer, known: KnownPages): Promise<PagePlan> {
  const found = await findPages(image, known);
  const layers = layersToKeep(found, known);
  const own: number[] = [];
  const runs: { layer: number; first: number; count: number }[] = [];
  for (const [page, at] of found.entries()) {
    if (isRestDue(page)) await nextTurn();
    const layer = layers.indexOf(known.layerOf(at)) + 1;
    const first = layer === 0 ? own.push(page) - 1 : known.pageInLayer(at);
    const last = runs.at(-1);
    if (last?.layer === layer && last.first + last.count === first) last.count++;
    else runs.push({ layer, first, count: 1 });
  }
  return { layers, runs, own };
}

function pagesIn(digests: Buffer): number {
  return digests.length / DIGEST_BYTES;
}

/** For each page of the image its number among all known pages, or -1. */
async function findPages(image: Buffer, known: KnownPages): Promise<Int32Array> {
  const found = new Int32Array(pagesIn(image));
  for (let page = 0, last = -1; page < found.length; page++) {
    if (isRestDue(page)) await nextTurn();
    // Equal pages (zeros above all) are in several places. Long runs make the plan short, and a wake quick.
    last = last >= 0 && known.continues(last, image, page) ? last + 1 : known.find(image, page);
    found[page] = last;
  }
  return found;
}

function layersToKeep(found: Int32Array, known: KnownPages): number[] {
  const used = known.pages.map(() => 0);
  for (const at of new Set(found)) if (at >= 0) used[known.layerOf(at)] = (used[known.layerOf(at)] ?? 0) + 1;
  return used
    .map((count, layer) => ({ layer, count, of: known.pages[layer] ?? 0 }))
    .filter(({ count, of }) => count > 0 && count >= of * LEAST_USED)
    .sort((a, b) => b.count - a.count)
    .slice(0, MOST_LAYERS)
    .map(({ layer }) => layer)
    .sort((a, b) => a - b);
}

/**
 * The pages of several layers, numbered through. A hash table without objects: an image of 1 GB has 262,144 pages, and this
 * process serves requests meanwhile.
 */
export class KnownPages {
  /** The number of pages of each layer. */
  readonly pages: readonly number[];
  /** The number of the first page of each layer. */
  readonly #first: readonly number[];
  readonly #digests: Buffer;
  /** Numbers of pages, each plus one. */
  readonly #table: Int32Array;
  readonly #shift: number;

  private constructor(layers: readonly Buffer[]) {
    this.pages = layers.map(pagesIn);
    let total = 0;
    this.#first = this.pages.map((pages) => {
      total += pages;
      return total - pages;
    });
    this.#digests = Buffer.concat(layers);
    const bits = Math.max(4, Math.ceil(Math.log2(2 * total + 2)));
    this.#table = new Int32Array(2 ** bits);
    this.#shift = 32 - bits;
  }

  /** For each layer the digests of its pages, one after the other. The newest layer is the first. */
  static async of(layers: readonly Buffer[]): Promise<KnownPages> {
    const known = new KnownPages(layers);
    // The oldest layer first: it is usually the largest, and where several layers have a page, the first one is found.
    for (const [layer, first] of [...known.#first.entries()].reverse()) {
      for (let page = 0; page < (known.pages[layer] ?? 0); page++) {
        if (isRestDue(page)) await nextTurn();
        known.#add(first + page);
      }
    }
    return known;
  }

  find(digests: Buffer, page: number): number {
    return (this.#table[this.#slotOf(digests, page)] ?? 0) - 1;
  }

  /** Whether the page equals the page after `at` in the same layer. */
  continues(at: number, digests: Buffer, page: number): boolean {
    const next = at + 1;
    return next < pagesIn(this.#digests) && !this.#first.includes(next) && this.#isEqual(next, digests, page);
  }

  /** -1 for the page -1. */
  layerOf(at: number): number {
    return this.#first.findLastIndex((first) => at >= first);
  }

  pageInLayer(at: number): number {
    return at - (this.#first[this.layerOf(at)] ?? 0);
  }

  #add(at: number): void {
    const slot = this.#slotOf(this.#digests, at);
    if (this.#table[slot] === 0) this.#table[slot] = at + 1;
  }

  /** The slot that has the page, or the free one where it belongs. */
  #slotOf(digests: Buffer, page: number): number {
    const mask = this.#table.length - 1;
    const from = page * DIGEST_BYTES;
    const mixed =
      Math.imul(digests.readInt32LE(from), KEYS[0]) ^ Math.imul(digests.readInt32LE(from + 4), KEYS[1]);
    for (let slot = mixed >>> this.#shift; ; slot = (slot + 1) & mask) {
      const at = (this.#table[slot] ?? 0) - 1;
      if (at < 0 || this.#isEqual(at, digests, page)) return slot;
    }
  }

  #isEqual(at: number, digests: Buffer, page: number): boolean {
    const [from, other] = [at * DIGEST_BYTES, page * DIGEST_BYTES];
    return this.#digests.compare(digests, other, other + DIGEST_BYTES, from, from + DIGEST_BYTES) === 0;
  }
}

/** A guest knows the digests of its pages. It must not be able to choose pages that all belong into one place of the table. */
const KEYS = [randomInt(2 ** 32) | 1, randomInt(2 ** 32) | 1] as const;

/** About a millisecond of work. */
const PAGES_WITHOUT_REST = 8_192;

/** Whether this process should do something else now. */
function isRestDue(page: number): boolean {
  return page > 0 && page % PAGES_WITHOUT_REST === 0;
}
