/** Parses the name in a `Host` header. Text that two parsers could read differently is refused. */

/**
 * Labels of letters, digits, dashes and underscores, or an IPv6 literal; an optional final dot; an optional port.
 * No user, no percent sign, no other alphabet: browsers send international names as ASCII.
 */
const AUTHORITY = /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*)\.?(?::(\d{1,5}))?$/i;
const MAX_LENGTH = 253 + ':65535'.length + 1;

/** The name in lower case and without its port; undefined when the text is not a host name. */
export function hostNameOf(authority: string): string | undefined {
  if (authority.length > MAX_LENGTH) return undefined;
  return AUTHORITY.exec(authority)?.[1]?.toLowerCase();
}
