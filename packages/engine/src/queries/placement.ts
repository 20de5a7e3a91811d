/** For the server: where requests about sandboxes are answered, and where new sandboxes go. */
import type { CreateRequest } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { NodeDirectory, Place } from '../ports/nodes.ts';
import { memoryLimit, originOf } from '../verbs/create.ts';

export function nodeDirectory(ctx: Context): NodeDirectory {
  return ctx.directory;
}

/** The node for a sandbox that is to be created. Throws `capacity` when none fits, and what a create would throw. */
export async function placeOf(ctx: Context, org: string, request: CreateRequest): Promise<Place> {
  if (!ctx.directory.isClustered) return { is: 'here' };
  const { base, definition } = await originOf(ctx, org, request);
  const resources = { ...definition?.resources, ...request.resources };
  const memoryMb = memoryLimit(runtimeOf(ctx, base), resources) ?? 0;
  return ctx.directory.place({ runtime: base.runtime, memoryMb, checkpointId: base.id });
}
