/** Which programs the checkpoints of a store need. */
import type { CheckpointStore, Manifest } from '@torpor/engine';
import { type LayerClaims, PROGRAM_KINDS, type ProgramId, type ProgramKind } from '@torpor/layers';
import { isDigest } from './programs.ts';

/**
 * The programs that the memory of a checkpoint needs. `needs` belongs to the runtime; the gVisor runtime names the programs
 * there under the same words as in claims.
 */
export function programsOf({ parts, needs }: Pick<Manifest, 'parts' | 'needs'>): readonly ProgramId[] {
  if (!parts.memory) return [];
  return PROGRAM_KINDS.flatMap((kind) => {
    const digest = needs[kind];
    return isDigest(digest) ? [{ kind, digest }] : [];
  });
}

/**
 * The digests of a kind in all claims. Where a checkpoint has no claim, or a claim that an earlier version wrote without
 * this kind, its manifest counts. Undefined when a claim or a manifest cannot be read.
 */
export async function claimedPrograms(
  store: CheckpointStore,
  claims: LayerClaims,
  kind: ProgramKind,
): Promise<ReadonlySet<string> | undefined> {
  if (!(await claims.isComplete())) return undefined;
  const digests = new Set(claims.all().flatMap((claim) => claim[kind] ?? []));
  for await (const { id, state } of store.list()) {
    if (state !== 'sealed' || typeof claims.of(id)?.[kind] === 'string') continue;
    const manifest = await store.read(id).catch(() => undefined);
    if (manifest === undefined) return undefined;
    for (const program of programsOf(manifest)) if (program.kind === kind) digests.add(program.digest);
  }
  return digests;
}
