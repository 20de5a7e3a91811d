/** The modules that the program `torpor` can reach, and the npm packages that they import. */
import { isBuiltin } from 'node:module';
import { join, relative } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';

export const ROOT = join(import.meta.dirname, '../..');

/** Packages that are built for the published package, and so are replaced by modules that read what was built. */
const REPLACED: Readonly<Record<string, string>> = {
  '@torpor/agent': 'scripts/torpor-package/prebuilt-agent.ts',
  '@torpor/dashboard': 'scripts/torpor-package/prebuilt-page.ts',
};

export interface ReachableModules {
  /** By path relative to the repository. */
  readonly modules: Metafile['inputs'];
  /** The bare names that each module imports. */
  readonly imported: readonly { readonly module: string; readonly name: string }[];
}

export async function reachableFrom(entries: readonly string[]): Promise<ReachableModules> {
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: [...entries],
    // Nothing is written: only the graph of the modules is of use.
    write: false,
    outdir: join(ROOT, 'dist'),
    bundle: true,
    metafile: true,
    platform: 'node',
    format: 'esm',
    target: 'esnext',
    plugins: [followWorkspace],
    logLevel: 'silent',
  });
  const imported = Object.entries(metafile.inputs).flatMap(([module, { imports }]) =>
    imports
      .filter(({ external, path }) => external && !isBuiltin(path))
      .map(({ path }) => ({ module, name: packageNameOf(path) })),
  );
  return { modules: metafile.inputs, imported };
}

const followWorkspace: Plugin = {
  name: 'follow-workspace',
  setup(bundler) {
    bundler.onResolve({ filter: /^[^./]/ }, ({ path, kind }) => {
      if (kind === 'entry-point') return undefined;
      const replacement = REPLACED[path];
      if (replacement !== undefined) return { path: join(ROOT, replacement) };
      return path.startsWith('@torpor/') ? undefined : { path, external: true };
    });
  },
};

function packageNameOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}

/** Where a module is in the published package. */
export function placeOf(module: string): string {
  const [replaced] = Object.entries(REPLACED).find(([, path]) => path === module) ?? [];
  if (replaced !== undefined) return `lib/${replaced.replace('@torpor/', '')}/src/index.js`;
  const path = relative('packages', module);
  if (path.startsWith('..')) throw new Error(`${module} is outside of the packages.`);
  return `lib/${path.replace(/\.ts$/, '.js')}`;
}
