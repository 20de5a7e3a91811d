/** The cookie that lets a browser in: how it is found among others, set, and kept from the app. */

const NAME = 'torpor-preview';
/** Browsers take a cookie of this name only from the host itself and over TLS. */
const SECURE_NAME = `__Host-${NAME}`;

const isOurs = (pair: string) => {
  const name = pair.split('=', 1)[0]?.trim();
  return name === NAME || name === SECURE_NAME;
};

/** All that claim to be it: a page under the same domain can add one of its own, but not take ours away. */
export function previewCookies(header: string | undefined): string[] {
  if (header === undefined || !header.includes(NAME)) return [];
  return header
    .split(';')
    .filter(isOurs)
    .map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
}

/** What is left for the app. */
export function withoutPreviewCookies(header: string): string {
  if (!header.includes(NAME)) return header;
  return header
    .split(';')
    .filter((pair) => !isOurs(pair))
    .join(';')
    .trim();
}

/** For this host alone, out of reach of scripts. */
export function setPreviewCookie(value: string, maxAgeMs: number, isSecure: boolean): string {
  const attributes = `Path=/; Max-Age=${Math.floor(maxAgeMs / 1_000)}; HttpOnly; SameSite=Lax`;
  return isSecure ? `${SECURE_NAME}=${value}; ${attributes}; Secure` : `${NAME}=${value}; ${attributes}`;
}

/** An app may not set, replace or clear the cookie that decides who sees it. */
export function setsPreviewCookie(setCookie: string): boolean {
  return isOurs(setCookie);
}
