/**
 * The names that what belongs to an instance has on the machine: container, network namespace, control group.
 * They carry the server and the generation, so that servers never meet and a stale owner can only name
 * something dead. None begins with another, because runsc takes the beginning of a name for the name.
 */
import { createHash } from 'node:crypto';
import type { Instance } from '@torpor/engine';
import { bareSandboxId, isId } from '@torpor/protocol';

/** One server, by the real path of its data directory. */
export function serverTag(dataDir: string): string {
  return createHash('sha256').update(dataDir).digest('hex').slice(0, 6);
}

export function instanceName(tag: string, { sandboxId, generation }: Instance): string {
  return `${tag}-${generation}-${bareSandboxId(sandboxId)}`;
}

/** Undefined for what is not an instance of this server. */
export function instanceOfName(tag: string, name: string): Instance | undefined {
  const [, generation, bare] = /^[0-9a-f]{6}-([1-9][0-9]{0,8})-([a-z0-9]{20})$/.exec(name) ?? [];
  if (bare === undefined || !name.startsWith(`${tag}-`)) return undefined;
  const sandboxId = `sbx_${bare}`;
  return isId('sbx', sandboxId) ? { sandboxId, generation: Number(generation) } : undefined;
}
