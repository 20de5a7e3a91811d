/** Whether the memory of a checkpoint can be restored here, with what this server and this host have now. */
import type { MemoryVerdict, SealedCheckpoint } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { needsOf } from './checkpoint-needs.ts';
import { openGuestTools } from './guest/guest-tools.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** Throws when a layer of the checkpoint is missing or damaged: then its files cannot be used either. */
export async function memoryVerdict(
  ctx: RuntimeContext,
  checkpoint: SealedCheckpoint,
): Promise<MemoryVerdict> {
  const { layers, layerStore, binaries, processor, base } = ctx;
  const needs = needsOf(checkpoint);
  // The system directories are read while the layers are inspected.
  const system = needs.root === 'base' ? base.current() : null;
  system?.catch(() => {});
  const inspections = needs.layers.map(({ id, nonce }) => layers.inspect(id, nonce));
  await Promise.all(inspections).catch((thrown: unknown) => {
    throw thrown instanceof TorporError ? thrown.with({ checkpointId: checkpoint.id }) : thrown;
  });
  if (!checkpoint.parts.memory) return { usable: false, why: 'it has none' };
  const pages = needs.pages.map(({ id, nonce }) => layers.inspect(id, nonce));
  const [damaged] = (await Promise.allSettled(pages)).filter(({ status }) => status === 'rejected');
  if (damaged !== undefined) return { usable: false, why: 'some of its pages are not here' };
  await binaries.refresh(needs.runsc);
  const whyUnusable = binaries.whyUnusable(needs.runsc);
  if (whyUnusable !== undefined) return { usable: false, why: whyUnusable };
  if (needs.processor !== processor) return { usable: false, why: 'it was made on another processor' };
  if (system !== null && (await system).fingerprint !== needs.system) {
    return { usable: false, why: 'the system directories of this host have changed since it was made' };
  }
  const tools = await openGuestTools(layerStore.programs, needs.tools).catch(() => undefined);
  if (tools === undefined) return { usable: false, why: 'the tools that ran in it are no longer kept' };
  return { usable: true };
}

/** Whether a template was prepared with another runsc, other tools or another root than new sandboxes get. */
export async function isOutdated(
  { binaries, tools, base, ownBase }: RuntimeContext,
  template: SealedCheckpoint,
): Promise<boolean> {
  const needs = needsOf(template);
  if (needs.runsc !== binaries.current.digest || needs.tools !== tools.fingerprint) return true;
  if (ownBase === null && needs.root === 'own') return true;
  const newest = ownBase?.();
  if (newest !== undefined) return needs.rootDigest !== newest.digest;
  return needs.root === 'base' && needs.system !== (await base.current()).fingerprint;
}
