/** The exit codes of `torpor`. Scripts rely on them: a code never changes its meaning. */
export const EXIT = {
  ok: 0,
  general: 1,
  invalid: 10,
  authentication: 11,
  notFound: 12,
  permission: 13,
  api: 14,
  file: 15,
  cancelled: 16,
  buildFailed: 17,
} as const;
