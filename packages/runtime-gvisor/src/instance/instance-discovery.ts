/** Finds the instances of this server: those with a record, and those that only left something on the host. */
import type { Instance } from '@torpor/engine';
import type { RuntimeContext } from '../runtime-context.ts';
import { instanceName, instanceOfName } from './instance-names.ts';

export async function* findInstances(ctx: RuntimeContext): AsyncGenerator<Instance> {
  const seen = new Set<string>();
  for await (const instance of ctx.files.list()) {
    seen.add(instanceName(ctx.serverTag, instance));
    yield instance;
  }
  for await (const stray of strayInstances(ctx))
    if (!seen.has(instanceName(ctx.serverTag, stray))) yield stray;
}

/** Instances that have a container, a network namespace or a control group, with or without a record. */
async function* strayInstances({
  runsc,
  network,
  cgroups,
  serverTag,
}: RuntimeContext): AsyncGenerator<Instance> {
  const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
  for (const name of new Set(names)) {
    const instance = instanceOfName(serverTag, name);
    if (instance !== undefined) yield instance;
  }
}

/** The instance whose record names this container. */
export async function instanceOfContainer(
  { files }: RuntimeContext,
  container: string,
): Promise<Instance | undefined> {
  for await (const instance of files.list()) {
    if (files.read(instance)?.container.id === container) return instance;
  }
  return undefined;
}
