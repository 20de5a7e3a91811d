/**
 * The bottom layer of a template. The layer of `base` is a copy of the root that was made for this host, or the layer that
 * `base` has already. Until there is such a root, it is a view of the host's system directories.
 */

import type { Image, LayerReference, TemplateSpec } from '@torpor/engine';
import { sha256OfFile } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { MachineBase } from '../base/build-base.mjs';
import { copyBase } from '../base/copy-base.ts';
import { needsOf } from '../checkpoint-needs.ts';
import { makeBaseRoot } from '../guest/base-root.ts';
import type { BaseSystem } from '../guest/base-system.ts';
import { makeRoot } from '../guest/rootfs-template.ts';
import type { RuntimeContext } from '../runtime-context.ts';

export type TemplateRoot =
  | { readonly is: 'archive'; readonly path: string }
  /** `image-root.ts` makes its layer. */
  | { readonly is: 'image'; readonly image: Image }
  | { readonly is: 'host'; readonly system: BaseSystem }
  | { readonly is: 'copy'; readonly base: MachineBase }
  /** The bottom layer of the previous version of the template, which only gets other tools or another runsc. */
  | { readonly is: 'layer'; readonly layer: LayerReference; readonly rootDigest: string | null };

/** `changed` is a root of this host that was found to be damaged. */
export async function chooseRoot(
  ctx: Pick<RuntimeContext, 'ownBase' | 'base'>,
  { name, root }: TemplateSpec,
  changed?: MachineBase,
): Promise<TemplateRoot> {
  if (root.kind === 'archive') return { is: 'archive', path: root.path };
  if (root.kind === 'image') return { is: 'image', image: root.image };
  if (name !== 'base') {
    throw new TorporError('capability_unsupported', `The gVisor runtime has no built-in template "${name}".`);
  }
  const found = ctx.ownBase?.();
  const base = found?.digest === changed?.digest ? undefined : found;
  const previous = root.previous === null ? undefined : needsOf(root.previous);
  const layer = previous?.root === 'own' ? previous.layers.at(-1) : undefined;
  const isCurrent = base === undefined || base.digest === previous?.rootDigest;
  if (ctx.ownBase !== null && layer !== undefined && isCurrent) {
    return { is: 'layer', layer, rootDigest: previous?.rootDigest ?? null };
  }
  return base === undefined ? { is: 'host', system: await ctx.base.current() } : { is: 'copy', base };
}

/** Fills the directory of a new layer, unless the root is a layer. Returns the digest of what it was made from. */
export async function fillRoot(
  root: Exclude<TemplateRoot, { readonly is: 'image' }>,
  into: string,
  signal: AbortSignal,
): Promise<string | null> {
  switch (root.is) {
    case 'layer':
      return root.rootDigest;
    case 'copy':
      await copyBase(root.base, into, signal);
      return root.base.digest;
    case 'host':
      await makeBaseRoot(into, root.system.directories);
      return null;
    case 'archive': {
      const digest = sha256OfFile(root.path);
      digest.catch(() => {});
      await makeRoot({ archive: root.path }, into, signal).catch((thrown: unknown) => {
        throw withoutPath(thrown, root.path);
      });
      return digest;
    }
  }
}

/** Removes the path of the archive on this host from an error: its sender must not learn it. */
function withoutPath(thrown: unknown, path: string): unknown {
  if (!(thrown instanceof TorporError) || thrown.code !== 'invalid_request') return thrown;
  const redact = (text: string) => text.replaceAll(path, 'the archive');
  return new TorporError(thrown.code, redact(thrown.message), { hint: redact(thrown.hint), cause: thrown });
}
