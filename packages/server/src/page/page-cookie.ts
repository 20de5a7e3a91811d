/** The cookie of a page session: unreadable for scripts, never sent by another site, for this host alone. */

const NAME = 'torpor-page';
/** Browsers accept a cookie with the `__Host-` prefix only from the host itself and over TLS. */
const SECURE_NAME = `__Host-${NAME}`;

/** All cookies of this name: a page of a neighbouring host can add one, but cannot remove the real one. */
export function pageCookies(header: string | undefined): string[] {
  return (header ?? '').split(';').flatMap((pair) => {
    const [name = '', value = ''] = pair.split(/=(.*)/s);
    return [NAME, SECURE_NAME].includes(name.trim()) ? [value.trim()] : [];
  });
}

/** The age 0 removes the cookie. */
export function setPageCookie(value: string, maxAgeMs: number, isSecure: boolean): string {
  const attributes = `Path=/; Max-Age=${Math.floor(maxAgeMs / 1_000)}; HttpOnly; SameSite=Strict`;
  return isSecure ? `${SECURE_NAME}=${value}; ${attributes}; Secure` : `${NAME}=${value}; ${attributes}`;
}
