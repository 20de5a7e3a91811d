/**
 * The cookie that gives a browser access to a private preview: finding it, setting it, and hiding it from the app. Apps
 * see and set no other cookie of Torpor's either.
 */

const NAME = 'torpor-preview';
/** Browsers accept a cookie with the `__Host-` prefix only from the host itself and over TLS. */
const SECURE_NAME = `__Host-${NAME}`;

const isPreviewCookie = (pair: string) => {
  const name = pair.split('=', 1)[0]?.trim();
  return name === NAME || name === SECURE_NAME;
};

/** Whether a pair of a `Cookie` or `Set-Cookie` header is Torpor's own, not the app's. */
export function isOwnCookie(pair: string): boolean {
  return /^\s*(?:__Host-)?torpor-(?:preview|page)\s*(?:[=;]|$)/.test(pair);
}

/** All cookies of this name: a page under the same domain can add one, but cannot remove the real one. */
export function previewCookies(header: string | undefined): string[] {
  if (header === undefined || !header.includes(NAME)) return [];
  return header
    .split(';')
    .filter(isPreviewCookie)
    .map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
}

/** The `Cookie` header that the app gets. */
export function withoutOwnCookies(header: string): string {
  if (!header.includes('torpor-')) return header;
  return header
    .split(';')
    .filter((pair) => !isOwnCookie(pair))
    .join(';')
    .trim();
}

/** A `Set-Cookie` value for this host alone, unreadable for scripts. */
export function setPreviewCookie(value: string, maxAgeMs: number, isSecure: boolean): string {
  const attributes = `Path=/; Max-Age=${Math.floor(maxAgeMs / 1_000)}; HttpOnly; SameSite=Lax`;
  return isSecure ? `${SECURE_NAME}=${value}; ${attributes}; Secure` : `${NAME}=${value}; ${attributes}`;
}
