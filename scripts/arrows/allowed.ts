/**
 * The allowed imports between packages ("arrows"). A new package gets its line here first. Benchmarks and tests that cross
 * packages are outside of packages/ and may import anything.
 */
export const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  host: ['protocol'],
  'object-store': ['host', 'protocol'],
  envd: ['protocol'],
  certificates: ['protocol'],
  engine: ['host', 'protocol'],
  database: ['engine', 'host', 'protocol'],
  layers: ['engine', 'host', 'protocol'],
  'checkpoint-store': ['layers', 'object-store', 'engine', 'host', 'protocol'],
  network: ['certificates', 'engine', 'host', 'protocol'],
  'runtime-shared': ['engine', 'envd', 'host', 'protocol'],
  'runtime-process': ['runtime-shared', 'engine', 'envd', 'host', 'protocol'],
  'runtime-e2b': ['runtime-shared', 'engine', 'envd', 'host', 'protocol'],
  'runtime-gvisor': ['runtime-shared', 'layers', 'network', 'engine', 'envd', 'host', 'protocol'],
  agent: ['envd', 'protocol'],
  gateway: ['certificates', 'engine', 'protocol'],
  builds: ['engine', 'protocol'],
  sessions: ['engine', 'protocol'],
  secrets: ['engine', 'protocol'],
  webhooks: ['network', 'engine', 'protocol'],
  images: ['network', 'engine', 'host', 'protocol'],
  server: [
    'protocol',
    'dashboard',
    'envd',
    'engine',
    'host',
    'database',
    'checkpoint-store',
    'object-store',
    'runtime-shared',
    'runtime-process',
    'runtime-gvisor',
    'runtime-e2b',
    'agent',
    'gateway',
    'builds',
    'sessions',
    'secrets',
    'webhooks',
    'images',
    'mcp',
  ],
  sdk: ['protocol'],
  dashboard: ['sdk'],
  mcp: ['sdk', 'protocol'],
  dockerfile: ['sdk'],
  cli: ['sdk', 'server', 'mcp', 'dockerfile', 'protocol'],
};

/** Packages that may import only these modules, and not even Node's built-in ones. */
export const ONLY: Readonly<Record<string, readonly string[]>> = {
  protocol: ['zod'],
};
