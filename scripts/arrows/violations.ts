/** Checks every import of every package against the table of arrows and the package's own package.json. */
import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join } from 'node:path';
import { ALLOWED, ONLY } from './allowed.ts';
import { importsOf } from './imports.ts';
import { type Package, readPackages, rootDevDependencies, sourceFilesOf } from './packages.ts';

interface Rules {
  readonly packages: readonly Package[];
  /** Dependencies of the root, such as vitest, which tests of all packages may use. */
  readonly shared: ReadonlySet<string>;
}

/** One sentence per violation, as `file:line  what is wrong and what is allowed`. */
export function findViolations(root: string): string[] {
  const rules = { packages: readPackages(root), shared: rootDevDependencies(root) };
  return rules.packages.flatMap((from) => {
    if (ALLOWED[from.folder] === undefined) {
      return [`packages/${from.folder}  has no line in the table of arrows (scripts/arrows/allowed.ts)`];
    }
    return sourceFilesOf(root, from).flatMap((file) => violationsIn(root, file, from, rules));
  });
}

function violationsIn(root: string, file: string, from: Package, rules: Rules): string[] {
  try {
    return importsOf(file, readFileSync(join(root, file), 'utf8')).flatMap(({ specifier, line }) => {
      const wrong = whatIsWrong(specifier, file, from, rules);
      return wrong === undefined ? [] : [`${file}:${line}  ${wrong}`];
    });
  } catch (error) {
    if (error instanceof SyntaxError) return [`${file}  cannot be parsed: ${error.message}`];
    throw error;
  }
}

function whatIsWrong(specifier: string, file: string, from: Package, rules: Rules): string | undefined {
  if (specifier.startsWith('.') || specifier.startsWith('/')) {
    return wrongWithPath(specifier, file, from);
  }
  const only = ONLY[from.folder];
  const name = packageNameOf(specifier);
  if (only !== undefined && !isTestCode(file) && !only.includes(name)) {
    return `imports '${specifier}'; ${from.folder} may import ${only.join(', ')} and nothing else`;
  }
  if (isBuiltin(specifier)) return undefined;
  return (
    wrongWithArrow(specifier, name, file, from, rules) ??
    wrongWithDeclaration(specifier, name, file, from, rules)
  );
}

function wrongWithPath(specifier: string, file: string, from: Package): string | undefined {
  const target = specifier.startsWith('/') ? specifier : join(dirname(file), specifier);
  if (!target.startsWith(`packages/${from.folder}/`)) {
    return `imports '${specifier}', which is outside packages/${from.folder}; import the package by its name`;
  }
  if (isTestCode(target) && !isTestCode(file)) {
    return `imports '${specifier}', which is test code; only tests and testing/ may`;
  }
  return undefined;
}

function wrongWithArrow(
  specifier: string,
  name: string,
  file: string,
  from: Package,
  { packages }: Rules,
): string | undefined {
  const target = packages.find((one) => one.name === name)?.folder;
  if (target === undefined && !name.startsWith('@torpor/')) return undefined;
  if (target !== undefined && isTestCode(file) && from.devDependencies.has(name)) return undefined;
  const allowed = ALLOWED[from.folder] ?? [];
  if (target === undefined || !allowed.includes(target)) {
    const list = allowed.length === 0 ? 'none of our packages' : `only ${allowed.join(', ')}`;
    return `imports '${specifier}'; ${from.folder} may import ${list}`;
  }
  if (specifier === `${name}/testing` && !isTestCode(file)) {
    return `imports '${specifier}', which is test code; only tests and testing/ may`;
  }
  return undefined;
}

function wrongWithDeclaration(
  specifier: string,
  name: string,
  file: string,
  from: Package,
  { shared }: Rules,
): string | undefined {
  if (from.dependencies.has(name)) return undefined;
  const manifest = `packages/${from.folder}/package.json`;
  if (!isTestCode(file)) return `imports '${specifier}'; declare ${name} in dependencies of ${manifest}`;
  if (from.devDependencies.has(name) || shared.has(name)) return undefined;
  return `imports '${specifier}'; declare ${name} in devDependencies of ${manifest}`;
}

/** `@scope/name/deep` → `@scope/name`, `name/deep` → `name`. */
function packageNameOf(specifier: string): string {
  const parts = specifier.split('/');
  return parts.slice(0, specifier.startsWith('@') ? 2 : 1).join('/');
}

function isTestCode(file: string): boolean {
  return /\.test\.tsx?$/.test(file) || /^packages\/.*\/testing\//.test(file);
}
