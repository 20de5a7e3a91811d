/**
 * The bottom layer of a template from a container image.
 *
 * Layers of an image differ from layers of ours: an image has many, and the root of a sandbox is faster with few. So a layer of
 * ours holds a layer of the image together with everything below it. It begins as a tree of hard links to the files of the
 * layer before it, which takes no space for their contents, and the changes of the image's layer are applied to that tree. The
 * bottom layer of the template is the last of them. Other templates whose images begin with the same layers begin there.
 *
 * Only layers of some size get a layer of their own: to fetch and apply a small one again is cheaper than another tree.
 */
import { createHash } from 'node:crypto';
import { chmod } from 'node:fs/promises';
import type { Image, ImageLayer, LayerReference, TemplateSpec } from '@torpor/engine';
import { ByteReader, programOutput } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { ROOT_LIMITS } from '../guest/rootfs-template.ts';
import { UnpackBudget, unpackLayer } from '../guest/unpack-root.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { type ImageLayerRecord, ImageLayerRecords } from './image-layer-records.ts';

const MB = 1_000_000;
/** From this size on a layer of an image is kept for other images. */
const SHARED_BYTES = 4 * MB;
const PROGRESS_EVERY_MS = 1_000;

export interface ImageRootParts {
  readonly ctx: Pick<RuntimeContext, 'layers' | 'clock' | 'directory'>;
  readonly owner: CheckpointId;
  readonly progress: TemplateSpec['progress'];
  readonly signal: AbortSignal;
  /** Claims these layers for the template, besides its upper layer. Replaces an earlier claim. */
  claim(layers: readonly LayerId[]): Promise<void>;
}

/** The layers of an image, from one that gets a layer of ours down to the one above the previous such layer. */
interface Step {
  readonly layers: readonly { readonly layer: ImageLayer; readonly number: number }[];
  /** Identifies the last layer together with all layers below it, as hex. */
  readonly chain: string;
}

export interface ImageRoot {
  readonly under: LayerReference;
  /** Lets other templates share the layers. Called when the template is complete: after a failure its layers are removed. */
  share(): Promise<void>;
}

export async function makeImageRoot(parts: ImageRootParts, image: Image): Promise<ImageRoot> {
  const { ctx, owner, signal } = parts;
  const { layers } = ctx;
  // The upper layer of the template exists already: after a failure it is removed by its claim.
  await parts.claim([]);
  const steps = stepsOf(image.layers);
  if (steps.length === 0)
    throw new TorporError('invalid_request', 'The image has no layers, so nothing can run in it.');
  const records = new ImageLayerRecords(ctx.directory);
  await records.prune(layers);
  const budget = new UnpackBudget(ROOT_LIMITS);
  let { done, below } = await findShared(parts, records, steps);
  const claimed = below === undefined ? [] : [below.id];
  const made = new Map<string, ImageLayerRecord>();
  for (const step of steps.slice(done)) {
    const id = await layers.create();
    claimed.push(id);
    await parts.claim(claimed);
    await mapWriteErrors(layers.path(id), () =>
      fill(parts, step, image.layers.length, below?.id, id, budget),
    );
    const { nonce } = await layers.seal(id, signal);
    made.set(step.chain, { id, nonce });
    below = { id, nonce, owner };
    done += 1;
  }
  if (below === undefined) throw new Error('An image with layers has a last one.');
  const under = below;
  return {
    under,
    share: async () => {
      for (const [chain, record] of made) await records.write(chain, record);
    },
  };
}

function stepsOf(layers: readonly ImageLayer[]): Step[] {
  const steps: Step[] = [];
  let chain = '';
  let open: { layer: ImageLayer; number: number }[] = [];
  for (const [index, layer] of layers.entries()) {
    chain = chain === '' ? layer.diffId : `sha256:${sha256(`${chain} ${layer.diffId}`)}`;
    open.push({ layer, number: index + 1 });
    if (layer.bytes < SHARED_BYTES && index < layers.length - 1) continue;
    steps.push({ layers: open, chain: chain.slice('sha256:'.length) });
    open = [];
  }
  return steps;
}

/**
 * The highest layer that another template has already. It is claimed before it is looked at, so that it cannot be removed
 * afterwards; `seal` waits for a removal that has begun.
 */
async function findShared(
  { ctx, owner, signal, claim }: ImageRootParts,
  records: ImageLayerRecords,
  steps: readonly Step[],
): Promise<{ done: number; below: LayerReference | undefined }> {
  for (let done = steps.length; done > 0; done -= 1) {
    const record = await records.find(steps[done - 1]?.chain ?? '');
    if (record === undefined) continue;
    await claim([record.id]);
    const sealed = await ctx.layers.seal(record.id, signal).catch(() => undefined);
    if (sealed?.nonce === record.nonce) return { done, below: { ...record, owner } };
  }
  return { done: 0, below: undefined };
}

async function fill(
  parts: ImageRootParts,
  step: Step,
  count: number,
  below: LayerId | undefined,
  id: LayerId,
  budget: UnpackBudget,
): Promise<void> {
  const { ctx, signal } = parts;
  const into = ctx.layers.path(id);
  await chmod(into, 0o755);
  if (below !== undefined)
    await programOutput('cp', ['--archive', '--link', '--', `${ctx.layers.path(below)}/.`, into], { signal });
  for (const { layer, number } of step.layers) {
    const reader = new ByteReader(withProgress(parts, layer, `layer ${number} of ${count}`));
    try {
      await unpackLayer(reader, into, budget, signal);
      // Only the end of the stream says whether its bytes were those of the image.
      await reader.finish();
    } catch (thrown) {
      throw inLayer(thrown, number, count);
    } finally {
      await reader.close();
    }
  }
}

async function* withProgress(
  { ctx, progress, signal }: ImageRootParts,
  layer: ImageLayer,
  name: string,
): AsyncGenerator<Buffer> {
  let received = 0;
  let reportedAt = ctx.clock.monotonic();
  await progress(`unpacking ${name}`);
  for await (const chunk of layer.read(signal, (bytes) => (received = bytes))) {
    yield chunk;
    if (ctx.clock.monotonic() - reportedAt < PROGRESS_EVERY_MS) continue;
    reportedAt = ctx.clock.monotonic();
    await progress(`unpacking ${name}: ${megabytes(received)} of ${megabytes(layer.bytes)} MB`);
  }
}

function megabytes(bytes: number): string {
  return (bytes / MB).toFixed(bytes < 10 * MB ? 1 : 0);
}

function inLayer(thrown: unknown, number: number, count: number): unknown {
  if (!(thrown instanceof TorporError) || thrown.code !== 'invalid_request') return thrown;
  return new TorporError(thrown.code, `In layer ${number} of ${count}: ${thrown.message}`, {
    hint: thrown.hint,
    cause: thrown,
  });
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
