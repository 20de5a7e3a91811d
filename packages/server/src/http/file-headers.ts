/** Headers for a file from a sandbox. It is served from the API's origin, so a browser must not treat it as a page. */
export const FILE_HEADERS = {
  'content-type': 'application/octet-stream',
  'content-disposition': 'attachment',
  'x-content-type-options': 'nosniff',
  'content-security-policy': 'sandbox',
} as const;
