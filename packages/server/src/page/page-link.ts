/** The address that signs a browser in. Browsers do not send the fragment, so the code is in no log. */
export function pageLink(origin: string, code: string): string {
  return `${origin}/#sign-in=${code}`;
}
