/** Describes an application from its files: the install, check and start commands, and its port. */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { type GeneratedFile, textOf } from '../runners/generated-files.ts';

export interface Project {
  readonly framework: 'next' | 'vite' | 'react-scripts' | 'express' | 'hono' | 'node' | 'static';
  readonly port: number;
  /** Undefined when there is nothing to install. */
  readonly install: string | undefined;
  /** The application's own check; undefined when it has none. */
  readonly check: string | undefined;
  /** The package.json script that starts the application; undefined for static files. */
  readonly script: 'dev' | 'start' | undefined;
  /** The shell command of the dev server, run in the workspace. */
  readonly start: string;
}

const names = z.record(z.string(), z.string());
const manifestSchema = z.object({
  scripts: names.optional(),
  dependencies: names.optional(),
  devDependencies: names.optional(),
  optionalDependencies: names.optional(),
});
type Manifest = z.infer<typeof manifestSchema>;

const DEFAULT_PORT = 3000;
const VITE_PORT = 5173;

export function describeProject(files: readonly GeneratedFile[], wantedPort: number | null): Project {
  const find = (path: string) => files.find((file) => file.path === path);
  const manifestFile = find('package.json');
  if (manifestFile === undefined) {
    refuseCodeWithoutManifest(files);
    if (find('index.html') === undefined)
      throw unusable('There is no package.json and no index.html to serve.');
    const port = wantedPort ?? DEFAULT_PORT;
    const nothing = { install: undefined, check: undefined, script: undefined };
    return { framework: 'static', port, ...nothing, start: staticServer(port) };
  }
  const manifest = readManifest(textOf(manifestFile));
  const framework = frameworkOf(manifest);
  const port = wantedPort ?? (framework === 'vite' ? VITE_PORT : DEFAULT_PORT);
  const script = startScriptOf(manifest, framework);
  return {
    framework,
    port,
    install: installOf(manifest, find('package-lock.json') !== undefined),
    check: scriptOf(manifest, 'check'),
    script,
    start: startOf(scriptOf(manifest, script) ?? '', framework, port),
  };
}

/** Code without a package.json cannot be started, so the build fails before a sandbox is created (R23). */
function refuseCodeWithoutManifest(files: readonly GeneratedFile[]): void {
  const code = files.find(({ path }) => /\.[cm]?[jt]sx?$/.test(path));
  if (code !== undefined) throw unusable(`There is code (${code.path}) but no package.json.`);
}

function readManifest(text: string): Manifest {
  try {
    return manifestSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new TorporError('invalid_request', 'The package.json cannot be read.', { cause });
  }
}

const FRAMEWORKS = ['next', 'vite', 'react-scripts', 'express', 'hono'] as const;

function frameworkOf({ dependencies = {}, devDependencies = {} }: Manifest): Project['framework'] {
  const found = FRAMEWORKS.find((name) => Object.hasOwn({ ...devDependencies, ...dependencies }, name));
  return found ?? 'node';
}

function installOf(manifest: Manifest, locked: boolean): string | undefined {
  const { dependencies = {}, devDependencies = {}, optionalDependencies = {} } = manifest;
  const wanted = Object.keys({ ...dependencies, ...devDependencies, ...optionalDependencies });
  if (wanted.length === 0) return undefined;
  return `npm ${locked ? 'ci' : 'install'} --no-audit --no-fund --loglevel=warn`;
}

/**
 * The script itself rather than `npm run`, so that npm does not stay in memory. A script with a pre or post script
 * needs npm.
 */
function scriptOf({ scripts = {} }: Manifest, name: string): string | undefined {
  const script = Object.hasOwn(scripts, name) ? scripts[name] : undefined;
  if (script === undefined || script.trim() === '') return undefined;
  const plain = !Object.hasOwn(scripts, `pre${name}`) && !Object.hasOwn(scripts, `post${name}`);
  return plain ? script : `npm run --silent ${name} --`;
}

/** Flags that set the port of each framework's dev server. */
const PORT_FLAGS: Partial<Readonly<Record<Project['framework'], string>>> = {
  next: ' --port "$PORT"',
  vite: ' --host 127.0.0.1 --port "$PORT" --strictPort',
};
/** Frameworks whose start script is also meant for development. */
const PREFERS_START: ReadonlySet<Project['framework']> = new Set(['react-scripts', 'express', 'hono']);

function startScriptOf(manifest: Manifest, framework: Project['framework']): 'dev' | 'start' {
  const order = PREFERS_START.has(framework) ? (['start', 'dev'] as const) : (['dev', 'start'] as const);
  const script = order.find((name) => scriptOf(manifest, name) !== undefined);
  if (script === undefined) throw unusable('The package.json has neither a "dev" nor a "start" script.');
  return script;
}

function startOf(script: string, framework: Project['framework'], port: number): string {
  return [
    // A runtime without network namespaces sets PORT to the port to use instead.
    `export PORT="\${PORT:-${port}}" HOST=127.0.0.1 BROWSER=none CI=true`,
    'export PATH="$PWD/node_modules/.bin:$PATH"',
    `${script}${PORT_FLAGS[framework] ?? ''}`,
  ].join('; ');
}

function staticServer(port: number): string {
  return `exec python3 -m http.server --bind 127.0.0.1 "\${PORT:-${port}}"`;
}

function unusable(message: string): TorporError {
  return new TorporError('invalid_request', message, {
    hint: 'An application needs a package.json with a "dev" or "start" script, or an index.html.',
  });
}
