/**
 * Bundles the page into files with hashed names, compressed once. The result is kept in `dist/` under a hash of the
 * sources, so that only the first start after a change builds.
 */
import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, extname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { build, type Metafile } from 'esbuild';
import { smallSchemas } from './small-schemas.ts';

const PACKAGE = join(import.meta.dirname, '..');
const ENTRY = 'browser/main.tsx';
const ICON = 'browser/icon.svg';
/** The packages whose sources are in the bundle. */
const SOURCES = ['dashboard/browser', 'dashboard/src', 'sdk/src', 'protocol/src'];

export interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly gzip: Buffer;
  readonly br: Buffer;
}

export interface PageFiles {
  /** The names of the files that the HTML document refers to. */
  readonly script: string;
  readonly style: string;
  readonly icon: string;
  readonly files: ReadonlyMap<string, PageFile>;
}

interface Manifest {
  readonly script: string;
  readonly style: string;
  readonly icon: string;
  readonly files: readonly string[];
}

const MANIFEST = 'manifest.json';
const HASH = /^[0-9a-f]{20}$/;

/** `into`: the directory in which the results are kept. */
export async function buildPage(into = join(PACKAGE, 'dist')): Promise<PageFiles> {
  const directory = join(into, await sourceHash());
  const kept = await readFile(join(directory, MANIFEST), 'utf8').catch(() => undefined);
  if (kept === undefined) await bundle(directory);
  return read(directory);
}

async function bundle(directory: string): Promise<void> {
  const work = `${directory}-${randomUUID()}`;
  try {
    const { metafile } = await build({
      absWorkingDir: PACKAGE,
      entryPoints: [ENTRY, ICON],
      outdir: work,
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'browser',
      target: ['chrome111', 'firefox115', 'safari16.4'],
      jsx: 'automatic',
      jsxImportSource: 'preact',
      minify: true,
      metafile: true,
      entryNames: '[name]-[hash]',
      chunkNames: '[name]-[hash]',
      assetNames: '[name]-[hash]',
      loader: { '.svg': 'copy' },
      plugins: [smallSchemas],
      logLevel: 'silent',
    });
    const manifest = manifestOf(metafile);
    await Promise.all(manifest.files.map((name) => compress(join(work, name))));
    await writeFile(join(work, MANIFEST), JSON.stringify(manifest));
    // Another server may have built the same; then its files are as good.
    await rename(work, directory).catch(async (thrown: unknown) => {
      await readFile(join(directory, MANIFEST)).catch(() => {
        throw thrown;
      });
    });
    await removeOthers(directory);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Removes what was built from earlier sources. A running server has its files in memory. */
async function removeOthers(directory: string): Promise<void> {
  const own = basename(directory);
  const all = await readdir(dirname(directory));
  const old = all.filter((name) => HASH.test(name) && name !== own);
  for (const name of old) await rm(join(dirname(directory), name), { recursive: true, force: true });
}

function manifestOf({ outputs }: Metafile): Manifest {
  const entries = Object.entries(outputs);
  const made = (source: string, extension: string): string => {
    const found = entries.find(([path, { entryPoint }]) => entryPoint === source && path.endsWith(extension));
    if (found === undefined) throw new Error(`The bundle has no file of ${source}.`);
    return found[0];
  };
  const script = made(ENTRY, '.js');
  const style = outputs[script]?.cssBundle;
  if (style === undefined) throw new Error('The bundle has no styles.');
  return {
    script: basename(script),
    style: basename(style),
    icon: basename(made(ICON, '.svg')),
    files: entries.map(([path]) => basename(path)),
  };
}

async function compress(path: string): Promise<void> {
  const bytes = await readFile(path);
  await writeFile(`${path}.gzip`, await promisify(gzip)(bytes, { level: 9 }));
  // The best quality takes ten times as long for a few percent.
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
  await writeFile(`${path}.br`, await promisify(brotliCompress)(bytes, { params }));
}

async function read(directory: string): Promise<PageFiles> {
  const { files, ...names } = JSON.parse(await readFile(join(directory, MANIFEST), 'utf8')) as Manifest;
  const loaded = await Promise.all(
    files.map(async (name): Promise<[string, PageFile]> => {
      const path = join(directory, name);
      const [bytes, zipped, br] = await Promise.all([
        readFile(path),
        readFile(`${path}.gzip`),
        readFile(`${path}.br`),
      ]);
      return [name, { type: typeOf(name), bytes, gzip: zipped, br }];
    }),
  );
  return { ...names, files: new Map(loaded) };
}

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

function typeOf(name: string): string {
  return TYPES[extname(name)] ?? 'application/octet-stream';
}

/** A hash of everything that goes into the bundle. package.json stands for the versions of the dependencies. */
async function sourceHash(): Promise<string> {
  const hash = createHash('sha256');
  const root = join(PACKAGE, '..');
  const found = await Promise.all(SOURCES.map((source) => filesIn(join(root, source))));
  const sources = found.flat().filter((file) => !/\.test\.tsx?$/.test(file));
  for (const file of [join(PACKAGE, 'package.json'), ...sources]) {
    hash.update(`${relative(root, file)}\0`).update(await readFile(file));
  }
  return hash.digest('hex').slice(0, 20);
}

/** All files below a directory, sorted, so that the order does not depend on the system. */
async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((file) => join(file.parentPath, file.name))
    .sort();
}
