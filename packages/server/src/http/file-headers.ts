/** For a file that somebody else wrote: it comes from the API's own address, and must not be taken for a page of it. */
export const FILE_HEADERS = {
  'content-type': 'application/octet-stream',
  'content-disposition': 'attachment',
  'x-content-type-options': 'nosniff',
  'content-security-policy': 'sandbox',
} as const;
