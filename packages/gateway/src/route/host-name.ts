/** The name in a `Host` header. Whatever could be read in two ways is no name. */

/**
 * Letters, digits, dashes and underscores in labels, or an IPv6 literal; a port; a dot at the end as DNS has it.
 * No user, no percent sign, no other alphabet: browsers send those as ASCII too.
 */
const AUTHORITY = /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*)\.?(?::(\d{1,5}))?$/i;
const MAX_LENGTH = 253 + ':65535'.length + 1;

/** Lower-cased and without its port; undefined when it is not a name. */
export function hostNameOf(authority: string): string | undefined {
  if (authority.length > MAX_LENGTH) return undefined;
  return AUTHORITY.exec(authority)?.[1]?.toLowerCase();
}
