/** The errno code of a failed system call, such as `ENOENT`. Node's own argument errors (`ERR_…`) have none. */
export function errnoOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' && /^E[A-Z0-9]+$/.test(thrown.code) ? thrown.code : undefined;
}

/** Whether a system call failed because the file or program does not exist. */
export function isMissing(thrown: unknown): boolean {
  return errnoOf(thrown) === 'ENOENT';
}
