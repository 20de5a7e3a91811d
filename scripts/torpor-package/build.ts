/**
 * Builds the package `torpor` for users: server and command line in one, as JavaScript, because Node does not run TypeScript
 * below node_modules. The packages of the workspace keep their places relative to each other, so that modules find their
 * migrations, starters and programs as they do in a clone. The agent and the page are built already.
 */
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import { buildPage } from '@torpor/dashboard';
import { transform } from 'esbuild';
import { placeOf, type ReachableModules, ROOT, reachableFrom } from './modules.ts';
import type { PrebuiltPage } from './prebuilt-page.ts';

const PROGRAM = 'cli/bin/torpor.mjs';
/** Directories that modules read at run time. */
const DIRECTORIES = [/\/migrations$/, /^builds\/starters$/];

export async function buildTorpor(into: string): Promise<void> {
  await rm(into, { recursive: true, force: true });
  const reachable = await reachableFrom([
    'packages/cli/src/main.ts',
    // Started as programs of their own.
    'packages/network/src/socket-maker.ts',
    ...(await scriptsOfPackages()),
  ]);
  for (const [module, { imports }] of Object.entries(reachable.modules)) {
    await writeModule(into, module, imports);
  }
  await writeProgram(into);
  await copyDirectories(into);
  await writeAgent(join(into, 'lib/agent/dist'));
  await writePage(join(into, 'lib/dashboard/dist'));
  await writeFile(join(into, 'package.json'), `${JSON.stringify(await manifest(reachable), null, 2)}\n`);
  for (const file of ['README.md', 'LICENSE', 'CHANGELOG.md']) await cp(join(ROOT, file), join(into, file));
}

/** Plain scripts, which modules import or start. */
async function scriptsOfPackages(): Promise<string[]> {
  const files = await readdir(join(ROOT, 'packages'), { recursive: true, withFileTypes: true });
  return files
    .filter(
      ({ name, parentPath }) => name.endsWith('.mjs') && /packages\/[^/]+\/src(?:\/|$)/.test(parentPath),
    )
    .filter(({ parentPath }) => !parentPath.includes('node_modules'))
    .map(({ name, parentPath }) => relative(ROOT, join(parentPath, name)))
    .sort();
}

type Imports = ReachableModules['modules'][string]['imports'];

async function writeModule(into: string, module: string, imports: Imports): Promise<void> {
  const place = placeOf(module);
  const source = await readFile(join(ROOT, module), 'utf8');
  await mkdir(dirname(join(into, place)), { recursive: true });
  await writeFile(join(into, place), await published(module, source, imports));
}

async function published(module: string, source: string, imports: Imports): Promise<string> {
  if (module.endsWith('.json')) {
    const { name, version, type } = JSON.parse(source) as Manifest;
    return JSON.stringify({ name, version, type, private: true });
  }
  if (!module.endsWith('.ts')) return source;
  const { code } = await transform(source, {
    loader: 'ts',
    format: 'esm',
    target: 'esnext',
    tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
  });
  const from = dirname(placeOf(module));
  let settled = code.replaceAll(/"(\.\.?\/[^"\n]+)\.ts"/g, '"$1.js"');
  for (const { original, path, external } of imports) {
    if (external || original === undefined) continue;
    const to = relative(from, placeOf(path));
    const wanted = to.startsWith('.') ? to : `./${to}`;
    const written = original.replace(/^(\.\.?\/.+)\.ts$/, '$1.js');
    if (wanted !== written) settled = settled.replaceAll(`"${written}"`, `"${wanted}"`);
  }
  return settled;
}

async function writeProgram(into: string): Promise<void> {
  const source = await readFile(join(ROOT, 'packages', PROGRAM), 'utf8');
  const target = join(into, 'lib', PROGRAM);
  await mkdir(dirname(target), { recursive: true });
  await writeFile(target, source.replace("'../src/main.ts'", "'../src/main.js'"), { mode: 0o755 });
}

async function copyDirectories(into: string): Promise<void> {
  for (const name of await readdir(join(ROOT, 'packages'))) {
    for (const directory of await readdir(join(ROOT, 'packages', name))) {
      const path = `${name}/${directory}`;
      if (!DIRECTORIES.some((wanted) => wanted.test(path))) continue;
      await cp(join(ROOT, 'packages', path), join(into, 'lib', path), { recursive: true });
    }
  }
}

async function writeAgent(into: string): Promise<void> {
  const built = await bundleAgent();
  await mkdir(into, { recursive: true });
  for (const file of ['agent.mjs', 'sudo.cjs', 'stamp']) await cp(join(built, file), join(into, file));
}

async function writePage(into: string): Promise<void> {
  const { files, ...names } = await buildPage();
  await mkdir(into, { recursive: true });
  for (const [name, { bytes, gzip, br }] of files) {
    await writeFile(join(into, name), bytes);
    await writeFile(join(into, `${name}.gzip`), gzip);
    await writeFile(join(into, `${name}.br`), br);
  }
  const page: PrebuiltPage = { ...names, files: [...files].map(([name, { type }]) => ({ name, type })) };
  await writeFile(join(into, 'page.json'), JSON.stringify(page));
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly type: string;
  readonly license: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

async function manifest({ imported }: ReachableModules): Promise<object> {
  const cli = await readManifest('packages/cli');
  const agent = await readManifest('packages/agent');
  const workspace = await readManifest('.');
  return {
    name: 'torpor',
    version: cli.version,
    description: 'Sandboxes that sleep, and always wake: the server and its command line.',
    keywords: ['sandbox', 'agent', 'preview', 'checkpoint', 'gvisor', 'e2b', 'mcp'],
    license: cli.license,
    type: 'module',
    // An older Node starts the one of the optional dependency.
    engines: { node: '>=20' },
    bin: { torpor: `lib/${PROGRAM}` },
    exports: { './package.json': './package.json' },
    dependencies: sorted({
      ...(await declared(imported)),
      // The agent loads it inside of the sandbox.
      ...only(agent, '@lydell/node-pty'),
      ...only(agent, '@napi-rs/xattr'),
    }),
    optionalDependencies: only(workspace, 'node'),
    publishConfig: { access: 'public' },
  };
}

/** The version of each imported package, as the package that imports it declares it. */
async function declared(imported: ReachableModules['imported']): Promise<Record<string, string>> {
  const versions: Record<string, string> = {};
  for (const { module, name } of imported) {
    const owner = module.split('/').slice(0, 2).join('/');
    const { [name]: version } = only(await readManifest(owner), name);
    versions[name] = version as string;
  }
  return versions;
}

function only({ name: owner, dependencies = {} }: Manifest, name: string): Record<string, string> {
  const version = dependencies[name];
  if (version === undefined) throw new Error(`${owner} imports ${name} and does not declare it.`);
  return { [name]: version };
}

function sorted(dependencies: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(dependencies).sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function readManifest(directory: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(ROOT, directory, 'package.json'), 'utf8')) as Manifest;
}
