/**
 * Builds the SDK package for users: JavaScript and types for Node 20 and browsers. It includes the protocol package, which is
 * not published. Code in the workspace imports the sources directly and does not need this build.
 */
import { spawnSync } from 'node:child_process';
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const SDK = join(ROOT, 'packages/sdk');
const PROTOCOL = '@torpor/protocol';

export async function buildSdk(into: string): Promise<void> {
  const emitted = `${into}.emitted`;
  await rm(into, { recursive: true, force: true });
  await mkdir(dirname(into), { recursive: true });
  try {
    compile(emitted);
    await rename(join(emitted, 'sdk/src'), into);
    await rename(join(emitted, 'protocol/src'), join(into, 'protocol'));
  } finally {
    await rm(emitted, { recursive: true, force: true });
  }
  for (const file of await readdir(into, { recursive: true })) {
    if (/\.(?:js|d\.ts)$/.test(file)) await settle(into, file);
  }
  await writeFile(join(into, 'package.json'), `${JSON.stringify(await manifest(), null, 2)}\n`);
  await cp(join(ROOT, 'docs/sdk.md'), join(into, 'README.md'));
  await cp(join(ROOT, 'LICENSE'), join(into, 'LICENSE'));
}

function compile(outDir: string): void {
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  const args = [tsc, '-p', join(SDK, 'tsconfig.build.json'), '--outDir', outDir];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`The SDK does not compile:\n${stdout}${stderr}`);
}

/** Rewrites the imports of a file for its new directory. */
async function settle(into: string, file: string): Promise<void> {
  const path = join(into, file);
  const protocol = relative(dirname(path), join(into, 'protocol/index.js'));
  const text = await readFile(path, 'utf8');
  const settled = text
    .replaceAll(/(?<=\bfrom |\bimport\()(['"])(\.{1,2}\/[^'"]+)\.ts\1/g, '$1$2.js$1')
    .replaceAll(
      new RegExp(`(?<=\\bfrom |\\bimport\\()(['"])${PROTOCOL}\\1`, 'g'),
      `$1${protocol.startsWith('.') ? protocol : `./${protocol}`}$1`,
    )
    // The same object, but bundlers can drop its unused parts, which are most of it.
    .replaceAll("import { z } from 'zod'", "import * as z from 'zod'");
  await writeFile(path, settled);
}

interface Manifest {
  readonly version: string;
  readonly license: string;
  readonly dependencies: Readonly<Record<string, string>>;
}

async function manifest(): Promise<object> {
  const sdk = await readManifest(SDK);
  const protocol = await readManifest(join(ROOT, 'packages/protocol'));
  const { [PROTOCOL]: _, ...own } = sdk.dependencies;
  return {
    name: '@torpor/sdk',
    version: sdk.version,
    description: 'The client of Torpor: sandboxes that sleep, and always wake.',
    keywords: ['sandbox', 'agent', 'preview', 'checkpoint', 'torpor'],
    license: sdk.license,
    type: 'module',
    sideEffects: false,
    engines: { node: '>=20.3' },
    exports: { '.': { types: './index.d.ts', default: './index.js' }, './package.json': './package.json' },
    // For resolvers that do not support "exports".
    main: './index.js',
    types: './index.d.ts',
    dependencies: { ...own, ...protocol.dependencies },
    publishConfig: { access: 'public' },
  };
}

async function readManifest(dir: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(dir, 'package.json'), 'utf8')) as Manifest;
}
