/** The environment's variables where there is one; a browser has none. */
export type Environment = Readonly<Record<string, string | undefined>>;

export function environment(): Environment {
  return (globalThis as { process?: { env?: Environment } }).process?.env ?? {};
}
