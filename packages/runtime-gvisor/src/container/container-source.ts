/** Finds what the container of a start is made from: layers, tools, system directories, runsc. */
import { TorporError } from '@torpor/protocol';
import type { RunscBinary } from '../binaries/runsc-binaries.ts';
import type { GvisorNeeds } from '../checkpoint-needs.ts';
import { openGuestTools } from '../guest/guest-tools.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import type { ContainerSource } from './container-setup.ts';

/** A restore needs the tools and the runsc that the memory image was made with; a boot takes the current ones. */
export async function containerSourceFor(
  ctx: RuntimeContext,
  needs: GvisorNeeds,
  mode: 'memory' | 'files',
): Promise<ContainerSource> {
  const tools = mode === 'memory' ? await openGuestTools(ctx.layerStore.programs, needs.tools) : ctx.tools;
  const system = needs.root === 'base' ? await ctx.base.current() : null;
  const binary = mode === 'memory' ? keptBinary(ctx, needs.runsc) : ctx.binaries.current;
  return { rootKind: needs.root, lower: needs.layers, tools, system, binary };
}

function keptBinary({ binaries }: RuntimeContext, digest: string): RunscBinary {
  const kept = binaries.find(digest);
  if (kept !== undefined) return kept;
  throw new TorporError('checkpoint_incompatible', 'The runsc that wrote the memory is no longer kept.');
}
