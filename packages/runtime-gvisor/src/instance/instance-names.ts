/**
 * Names of instances. Containers, network namespaces and control groups of earlier versions have these names. New ones do
 * not, because a container may live through several generations: `unassignedName` names them, and the record of the
 * instance says which container it has.
 *
 * A name contains the tag of the server, so that two servers never use the same name, and the generation, so that a
 * stale owner can only name a dead container. No name is a prefix of another: runsc accepts a prefix for a name.
 */
import { createHash } from 'node:crypto';
import type { Instance } from '@torpor/engine';
import { bareSandboxId, isId } from '@torpor/protocol';

/** Identifies a server by the real path of its data directory. */
export function serverTag(dataDir: string): string {
  return createHash('sha256').update(dataDir).digest('hex').slice(0, 6);
}

export function instanceName(tag: string, { sandboxId, generation }: Instance): string {
  return `${tag}-${generation}-${bareSandboxId(sandboxId)}`;
}

/** Undefined for a name that is not of an instance of this server. */
export function instanceOfName(tag: string, name: string): Instance | undefined {
  const [, generation, bare] = /^[0-9a-f]{6}-([1-9][0-9]{0,8})-([a-z0-9]{20})$/.exec(name) ?? [];
  if (bare === undefined || !name.startsWith(`${tag}-`)) return undefined;
  const sandboxId = `sbx_${bare}`;
  return isId('sbx', sandboxId) ? { sandboxId, generation: Number(generation) } : undefined;
}
