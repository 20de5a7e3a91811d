/**
 * The arrows between packages: who may import whom, and nothing else. A new package gets its line here
 * first; benchmarks and the tests that cross packages live outside packages/ and may import anything.
 */
export const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  envd: ['protocol'],
  engine: ['protocol'],
  runtimes: ['engine', 'envd', 'protocol'],
  agent: ['envd', 'protocol'],
  gateway: ['engine', 'protocol'],
  builds: ['engine', 'protocol'],
  sessions: ['engine', 'protocol'],
  server: ['protocol', 'envd', 'engine', 'runtimes', 'agent', 'gateway', 'builds', 'sessions'],
  sdk: ['protocol'],
  cli: ['sdk', 'server', 'protocol'],
};

/** Packages that promise to import nothing else at all, not even what Node has built in. */
export const ONLY: Readonly<Record<string, readonly string[]>> = {
  protocol: ['zod'],
};
