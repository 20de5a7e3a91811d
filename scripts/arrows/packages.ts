/** Reads the packages of the workspace from their package.json files, and lists their source files. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Package {
  /** The name of the folder below packages/, which is also the name in the table of arrows. */
  readonly folder: string;
  /** The name that imports use. */
  readonly name: string;
  readonly dependencies: ReadonlySet<string>;
  readonly devDependencies: ReadonlySet<string>;
}

interface Manifest {
  readonly name?: string;
  readonly dependencies?: Record<string, string>;
  readonly optionalDependencies?: Record<string, string>;
  readonly peerDependencies?: Record<string, string>;
  readonly devDependencies?: Record<string, string>;
}

export function readPackages(root: string): Package[] {
  return readdirSync(join(root, 'packages'))
    .filter((folder) => existsSync(join(root, 'packages', folder, 'package.json')))
    .map((folder) => {
      const manifest = readManifest(join(root, 'packages', folder));
      return {
        folder,
        name: manifest.name ?? folder,
        dependencies: namesIn(
          manifest.dependencies,
          manifest.optionalDependencies,
          manifest.peerDependencies,
        ),
        devDependencies: namesIn(manifest.devDependencies),
      };
    });
}

export function rootDevDependencies(root: string): ReadonlySet<string> {
  return namesIn(readManifest(root).devDependencies);
}

/** Paths of all TypeScript files of the package, relative to the root, without installed and built files. */
export function sourceFilesOf(root: string, { folder }: Package): string[] {
  return readdirSync(join(root, 'packages', folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file) && !/(^|\/)(node_modules|dist)\//.test(file))
    .map((file) => join('packages', folder, file))
    .sort();
}

function readManifest(dir: string): Manifest {
  return JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8'));
}

function namesIn(...fields: (Record<string, string> | undefined)[]): ReadonlySet<string> {
  return new Set(fields.flatMap((field) => Object.keys(field ?? {})));
}
