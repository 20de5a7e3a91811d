/**
 * The allowed imports between packages ("arrows"). A new package gets its line here first. Benchmarks and tests that cross
 * packages are outside of packages/ and may import anything.
 */
export const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  host: ['protocol'],
  envd: ['protocol'],
  engine: ['host', 'protocol'],
  database: ['engine', 'host', 'protocol'],
  'checkpoint-store': ['engine', 'host', 'protocol'],
  layers: ['engine', 'host', 'protocol'],
  network: ['engine', 'host', 'protocol'],
  'runtime-shared': ['engine', 'envd', 'host', 'protocol'],
  'runtime-process': ['runtime-shared', 'engine', 'envd', 'host', 'protocol'],
  'runtime-e2b': ['runtime-shared', 'engine', 'envd', 'host', 'protocol'],
  'runtime-gvisor': ['runtime-shared', 'layers', 'network', 'engine', 'envd', 'host', 'protocol'],
  agent: ['envd', 'protocol'],
  gateway: ['engine', 'protocol'],
  builds: ['engine', 'protocol'],
  sessions: ['engine', 'protocol'],
  server: [
    'protocol',
    'envd',
    'engine',
    'host',
    'database',
    'checkpoint-store',
    'runtime-shared',
    'runtime-process',
    'runtime-gvisor',
    'runtime-e2b',
    'agent',
    'gateway',
    'builds',
    'sessions',
  ],
  sdk: ['protocol'],
  cli: ['sdk', 'server', 'protocol'],
};

/** Packages that may import only these modules, and not even Node's built-in ones. */
export const ONLY: Readonly<Record<string, readonly string[]>> = {
  protocol: ['zod'],
};
