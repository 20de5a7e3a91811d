/** The cookie that gives a browser access to a private preview: finding it, setting it, and hiding it from the app. */

const NAME = 'torpor-preview';
/** Browsers accept a cookie with the `__Host-` prefix only from the host itself and over TLS. */
const SECURE_NAME = `__Host-${NAME}`;

const isPreviewCookie = (pair: string) => {
  const name = pair.split('=', 1)[0]?.trim();
  return name === NAME || name === SECURE_NAME;
};

/** All cookies of this name: a page under the same domain can add one, but cannot remove the real one. */
export function previewCookies(header: string | undefined): string[] {
  if (header === undefined || !header.includes(NAME)) return [];
  return header
    .split(';')
    .filter(isPreviewCookie)
    .map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
}

/** The `Cookie` header that the app gets. */
export function withoutPreviewCookies(header: string): string {
  if (!header.includes(NAME)) return header;
  return header
    .split(';')
    .filter((pair) => !isPreviewCookie(pair))
    .join(';')
    .trim();
}

/** A `Set-Cookie` value for this host alone, unreadable for scripts. */
export function setPreviewCookie(value: string, maxAgeMs: number, isSecure: boolean): string {
  const attributes = `Path=/; Max-Age=${Math.floor(maxAgeMs / 1_000)}; HttpOnly; SameSite=Lax`;
  return isSecure ? `${SECURE_NAME}=${value}; ${attributes}; Secure` : `${NAME}=${value}; ${attributes}`;
}

/** An app must not set, replace or clear the cookie that controls access to it. */
export function setsPreviewCookie(setCookie: string): boolean {
  return isPreviewCookie(setCookie);
}
