import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { reasonToInstall, requireAgreement } from './npm-dependencies.mjs';

const ZOD = { version: '4.0.0', integrity: 'sha512-zod' };
const LINK = { link: true, resolved: 'packages/engine' };
let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'torpor-setup-'));
  write('package.json', {});
  write('packages/engine/package.json', { dependencies: { zod: '4.0.0' } });
  write('package-lock.json', {
    packages: {
      '': {},
      'node_modules/@torpor/engine': LINK,
      'node_modules/for-another-platform': { version: '1.0.0', optional: true },
      'node_modules/zod': ZOD,
      'packages/engine': { version: '0.1.0', dependencies: { zod: '4.0.0' } },
    },
  });
  writeRecord({ 'node_modules/zod': ZOD });
});

afterEach(() => rmSync(root, { recursive: true }));

function write(file: string, content: object): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), JSON.stringify(content));
}

/** The record that npm writes after a complete installation. */
function writeRecord(packages: object): void {
  write('node_modules/.package-lock.json', {
    packages: {
      'node_modules/@torpor/engine': LINK,
      'packages/engine': { version: '0.1.0' },
      ...packages,
    },
  });
}

describe('the reason to install', () => {
  it('does not exist when the record of npm equals the lockfile', () => {
    expect(reasonToInstall(root)).toBeUndefined();
  });

  it('is that npm has never finished an installation', () => {
    rmSync(join(root, 'node_modules/.package-lock.json'));

    expect(reasonToInstall(root)).toBe('dependencies are missing');
  });

  it('is a package that is missing', () => {
    writeRecord({});

    expect(reasonToInstall(root)).toBe('node_modules/zod is not as package-lock.json says');
  });

  it.each([
    { ...ZOD, version: '4.0.1' },
    { ...ZOD, integrity: 'sha512-other' },
  ])('is a package with another version or content', (zod) => {
    writeRecord({ 'node_modules/zod': zod });

    expect(reasonToInstall(root)).toBe('node_modules/zod is not as package-lock.json says');
  });
});

describe('the lockfile', () => {
  it('agrees with every package.json', () => {
    expect(() => requireAgreement(root)).not.toThrow();
  });

  it.each([
    ['a dependency that is new', 'engine', { dependencies: { zod: '4.0.0', pg: '8.0.0' } }],
    ['a dependency of another version', 'engine', { dependencies: { zod: '4.0.1' } }],
    ['a dependency that is gone', 'engine', {}],
    ['a package that is new', 'sdk', { devDependencies: { zod: '4.0.0' } }],
  ])('disagrees with %s', (_, folder, manifest) => {
    write(`packages/${folder}/package.json`, manifest);

    expect(() => requireAgreement(root)).toThrow(
      `packages/${folder}/package.json and package-lock.json disagree`,
    );
  });
});

describe('package-lock.json', () => {
  it('names the optional packages of every platform, or npm ci would refuse it', () => {
    const lock = JSON.parse(readFileSync(join(import.meta.dirname, '../../package-lock.json'), 'utf8'));
    const packages: Record<string, { optionalDependencies?: Record<string, string> }> = lock.packages;
    const optional = Object.values(packages).flatMap((entry) =>
      Object.keys(entry.optionalDependencies ?? {}),
    );
    const missing = optional.filter(
      (name) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)),
    );
    expect(optional.length).toBeGreaterThan(20);
    expect(missing).toEqual([]);
  });
});
