/**
 * The instance that a container belongs to, in a file beside the bundle of the container. A container is not named after
 * an instance, because one container may serve several generations. The record of the instance says which container it
 * has; this file is only for an instance whose record was lost.
 */
import { writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Instance } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { readTextSync } from '../read-text-sync.ts';
import type { RuntimeContext } from '../runtime-context.ts';

const OWNER = 'owner';

/** Not durable: after a power loss no container runs. */
export function writeOwner({ bundle }: { readonly bundle: string }, instance: Instance): void {
  writeFileSync(join(dirname(bundle), OWNER), textOf(instance), { mode: 0o600 });
}

export function isOwnedBy({ bundle }: { readonly bundle: string }, instance: Instance): boolean {
  return readTextSync(join(dirname(bundle), OWNER)) === textOf(instance);
}

/** The directory of the container that was last given to this instance; undefined when there is none. */
export async function directoryOwnedBy(
  { unassignedDir }: RuntimeContext,
  instance: Instance,
): Promise<string | undefined> {
  const text = textOf(instance);
  const names = await readdir(unassignedDir).catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
  return names
    .map((name) => join(unassignedDir, name))
    .find((directory) => readTextSync(join(directory, OWNER)) === text);
}

function textOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}\n`;
}
