/**
 * What a layer looks like on disk, under the directory of all layers:
 *
 * ```
 * lay_…/            an open or sealed layer
 *   fs/             its files, as overlayfs wrote them
 *   work/           a directory that overlayfs needs; created before the first mount
 *   seal.json       the seal record; an open layer has none
 *   contents.jsonl  the entries at the first verification
 * making-lay_…/     a layer that a merge or an unpacking is filling; renamed when it is sealed
 * removing-lay_…/   a layer that is being deleted
 * ```
 */
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import { isLayerId, type LayerId } from './layer-id.ts';
import type { LayerState } from './layers.ts';

const PREFIXES = { layer: '', creating: 'making-', removing: 'removing-' } as const;
type Stage = keyof typeof PREFIXES;

export const FILES = 'fs';
export const WORK = 'work';
export const SEAL = 'seal.json';
export const CONTENTS = 'contents.jsonl';
/** There while the last verification of the layer has found damage. No archive has it. */
export const DAMAGED = 'damaged';

/** Relative to the directory of all layers. The only function that turns an id into a path component; it validates the id. */
export function layerName(id: LayerId, stage: Stage = 'layer'): string {
  if (!isLayerId(id)) throw new TorporError('invalid_request', 'This is not the id of a layer.');
  return PREFIXES[stage] + id;
}

export function layerPath(root: string, id: LayerId, stage: Stage = 'layer'): string {
  return join(root, layerName(id, stage));
}

export function filesPath(root: string, id: LayerId): string {
  return join(layerPath(root, id), FILES);
}

/** The layer that a directory belongs to, from the directory's name alone. Only the seal record says whether it is sealed. */
export function layerOf(
  name: string,
): { readonly id: LayerId; readonly stage: 'layer' | LayerState } | undefined {
  for (const stage of ['creating', 'removing', 'layer'] as const) {
    const id = name.slice(PREFIXES[stage].length);
    if (name.startsWith(PREFIXES[stage]) && isLayerId(id)) return { id, stage };
  }
  return undefined;
}
