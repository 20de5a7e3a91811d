/**
 * Bundles the agent into one file, with the native terminal library beside it, and the program `sudo` into another.
 * Nothing else of node_modules goes into a sandbox.
 */
import { createHash, randomUUID } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';

const PACKAGE = join(import.meta.dirname, '..');
const require = createRequire(import.meta.url);

/** Copied beside the bundle, because native modules cannot be bundled. */
const NATIVE = ['@lydell/node-pty', `@lydell/node-pty-${process.platform}-${process.arch}`];

export interface BundleOptions {
  /**
   * The output directory; the package's `dist` by default. Running agents still load the terminal library from it,
   * so it is updated in place and never removed.
   */
  readonly into?: string;
}

/** Builds only when the sources have changed. Returns the directory; the program in it is `agent.mjs`. */
export async function bundleAgent({ into = join(PACKAGE, 'dist') }: BundleOptions = {}): Promise<string> {
  const stamp = await sourceStamp();
  const stampFile = join(into, 'stamp');
  if ((await readFile(stampFile, 'utf8').catch(() => '')) === stamp) return into;
  const work = `${into}-${randomUUID()}`;
  try {
    await mkdir(work, { recursive: true });
    await bundle(join(work, 'agent.mjs'));
    await bundleSudo(join(work, 'sudo.cjs'));
    await copyNative(work);
    await writeFile(join(work, 'stamp'), stamp);
    await publish(work, into);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return into;
}

async function bundle(outfile: string): Promise<void> {
  await build({
    entryPoints: [join(PACKAGE, 'src/main.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    external: ['@lydell/node-pty'],
    // Some bundled dependencies call `require`.
    banner: {
      js: "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);",
    },
    plugins: [treeShakeProtocol, requireBuiltins],
    logLevel: 'silent',
  });
}

/** `sudo` starts anew for each call, so it is a small minified CommonJS script, which Node loads fastest. */
async function bundleSudo(outfile: string): Promise<void> {
  await build({
    entryPoints: [join(PACKAGE, 'src/sudo/program.ts')],
    outfile,
    bundle: true,
    minify: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    logLevel: 'silent',
  });
}

/**
 * Marks @torpor/protocol as free of side effects, so that esbuild drops its unused schemas. They would be three
 * quarters of the bundle.
 */
const treeShakeProtocol: Plugin = {
  name: 'only-what-is-used',
  setup(bundler) {
    bundler.onResolve({ filter: /^@torpor\/protocol$|^\.\.?\// }, async ({ path, pluginData, ...where }) => {
      const isProtocol = path === '@torpor/protocol' || where.importer.includes('/packages/protocol/');
      if (pluginData === treeShakeProtocol || !isProtocol) return undefined;
      const found = await bundler.resolve(path, { ...where, pluginData: treeShakeProtocol });
      return { path: found.path, errors: found.errors, sideEffects: false };
    });
  },
};

/**
 * Loads Node's built-in modules with `require`. An `import` of a built-in module reads all its exports, and some of
 * them load whole libraries when they are read (a WebSocket client behind `node:http`). A `require` reads none: the
 * agent starts a fifth faster and uses a megabyte less memory.
 */
const requireBuiltins: Plugin = {
  name: 'builtins-as-they-are',
  setup(bundler) {
    bundler.onResolve({ filter: /^[a-z_0-9:/]+$/, namespace: 'file' }, ({ path }) =>
      isBuiltin(path) ? { path, namespace: 'builtin', sideEffects: false } : undefined,
    );
    bundler.onResolve({ filter: /./, namespace: 'builtin' }, ({ path }) => ({ path, external: true }));
    bundler.onLoad({ filter: /./, namespace: 'builtin' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)})`,
    }));
  },
};

async function copyNative(work: string): Promise<void> {
  for (const name of NATIVE) {
    const from = dirname(
      require.resolve(`${name}/package.json`, { paths: [require.resolve('@lydell/node-pty')] }),
    );
    await cp(from, join(work, 'node_modules', name), { recursive: true });
  }
}

/** Moves file by file, so that a running agent finds each file at any time. The stamp is moved last. */
async function publish(work: string, into: string): Promise<void> {
  for (const file of (await filesIn(work)).filter((name) => name !== 'stamp').concat('stamp')) {
    await mkdir(dirname(join(into, file)), { recursive: true });
    await rename(join(work, file), join(into, file));
  }
}

/** A hash of everything that goes into the bundle. package.json stands for the versions of the dependencies. */
async function sourceStamp(): Promise<string> {
  const hash = createHash('sha256').update(`${process.platform}-${process.arch}`);
  for (const name of ['agent', 'envd', 'protocol']) {
    const directory = join(PACKAGE, '..', name);
    const sources = (await filesIn(join(directory, 'src'))).filter((file) => !/\.(test|d)\.ts$/.test(file));
    for (const file of ['package.json', ...sources.map((source) => join('src', source))]) {
      hash.update(`${name}/${file}\0`).update(await readFile(join(directory, file)));
    }
  }
  return hash.digest('hex');
}

/** Relative paths of all files below a directory, sorted, so that the order does not depend on the system. */
async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((file) => relative(directory, join(file.parentPath, file.name))).sort();
}
