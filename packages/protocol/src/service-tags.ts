/**
 * How agents mark the processes of declared services. This file must not import schemas: the agent is bundled with it, and would
 * carry the schema library along.
 */

/** The most services that a sandbox can declare. */
export const MAX_SERVICES = 32;

const SERVICE = 'service:';

/** The tag with which an agent marks the process of a declared service. */
export function serviceTag(name: string): string {
  return SERVICE + name;
}

export function isServiceTag(tag: string): boolean {
  return tag.startsWith(SERVICE);
}
