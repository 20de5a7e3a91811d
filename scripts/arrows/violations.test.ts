import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findViolations } from './violations.ts';

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'torpor-arrows-'));
  write('package.json', JSON.stringify({ devDependencies: { vitest: '1.0.0' } }));
  writePackage('protocol', { dependencies: { zod: '1.0.0' } });
  writePackage('engine', {
    dependencies: { '@torpor/protocol': '0.1.0', pg: '1.0.0' },
    devDependencies: { 'fake-clock': '1.0.0' },
  });
  writePackage('sdk', { dependencies: {} });
});

afterEach(() => rmSync(root, { recursive: true }));

function write(file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

function writePackage(folder: string, manifest: object): void {
  write(`packages/${folder}/package.json`, JSON.stringify({ name: `@torpor/${folder}`, ...manifest }));
}

describe('the arrows', () => {
  it('allow imports that are allowed and declared', () => {
    write('packages/protocol/src/ids.ts', `import { z } from 'zod';`);
    write('packages/engine/src/deep/a.ts', `import '@torpor/protocol'; import 'pg/lib/x'; import '../b.ts';`);
    write('packages/engine/src/b.ts', `import { join } from 'node:path';`);

    expect(findViolations(root)).toEqual([]);
  });

  it('refuse an import against the arrows and name the allowed packages', () => {
    write('packages/protocol/testing/index.ts', `import { x } from '@torpor/engine';`);
    write('packages/engine/src/a.ts', `\n\nimport { x } from '@torpor/sdk/client';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:3  imports '@torpor/sdk/client'; engine may import only host, protocol`,
      `packages/protocol/testing/index.ts:1  imports '@torpor/engine'; protocol may import none of our packages`,
    ]);
  });

  it('identify a package by its published name', () => {
    writePackage('cli', { name: 'torpor', dependencies: {} });
    write('packages/engine/src/a.ts', `import 'torpor';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:1  imports 'torpor'; engine may import only host, protocol`,
    ]);
  });

  it('refuse an import of a workspace package that does not exist', () => {
    write('packages/engine/src/a.ts', `import '@torpor/nobody';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:1  imports '@torpor/nobody'; engine may import only host, protocol`,
    ]);
  });

  it('refuse an allowed package that is not declared', () => {
    write('packages/sdk/src/a.ts', `import '@torpor/protocol';`);

    expect(findViolations(root)).toEqual([
      `packages/sdk/src/a.ts:1  imports '@torpor/protocol'; declare @torpor/protocol in dependencies of packages/sdk/package.json`,
    ]);
  });

  it('refuse a package without a line in the table', () => {
    writePackage('stranger', {});

    expect(findViolations(root)).toEqual([
      'packages/stranger  has no line in the table of arrows (scripts/arrows/allowed.ts)',
    ]);
  });
});

describe('relative imports', () => {
  it.each(['../../sdk/src/a.ts', '../../../tests/x.ts', '/etc/x.ts', '../../engine-more/a.ts'])(
    'may not leave the package: %s',
    (specifier) => {
      write('packages/engine/src/a.ts', `import '${specifier}';`);

      expect(findViolations(root)).toEqual([
        `packages/engine/src/a.ts:1  imports '${specifier}', which is outside packages/engine; import the package by its name`,
      ]);
    },
  );
});

describe('test code', () => {
  it('may use devDependencies, those of the root, and other test code', () => {
    const text = `import 'vitest'; import 'fake-clock'; import '../testing/clock.ts';`;
    write('packages/engine/src/a.test.ts', text);
    write('packages/engine/testing/clock.ts', text);

    expect(findViolations(root)).toEqual([]);
  });

  it('may use workspace packages that only its devDependencies name', () => {
    writePackage('database', { dependencies: { '@torpor/engine': '0.1.0' } });
    writePackage('engine', { devDependencies: { '@torpor/database': '0.1.0' } });
    write('packages/engine/src/a.test.ts', `import '@torpor/database';`);
    write('packages/engine/src/a.ts', `import '@torpor/database';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:1  imports '@torpor/database'; engine may import only host, protocol`,
    ]);
  });

  it('may not use a package that is not declared', () => {
    write('packages/engine/src/a.test.ts', `import 'left-pad';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.test.ts:1  imports 'left-pad'; declare left-pad in devDependencies of packages/engine/package.json`,
    ]);
  });

  it('may not be imported by shipped code, nor may devDependencies', () => {
    write('packages/engine/src/a.ts', `import '../testing/clock.ts';`);
    write('packages/engine/src/b.ts', `import './a.test.ts';`);
    write('packages/engine/src/c.ts', `import '@torpor/protocol/testing';`);
    write('packages/engine/src/d.ts', `import 'vitest'; import 'fake-clock';`);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:1  imports '../testing/clock.ts', which is test code; only tests and testing/ may`,
      `packages/engine/src/b.ts:1  imports './a.test.ts', which is test code; only tests and testing/ may`,
      `packages/engine/src/c.ts:1  imports '@torpor/protocol/testing', which is test code; only tests and testing/ may`,
      `packages/engine/src/d.ts:1  imports 'vitest'; declare vitest in dependencies of packages/engine/package.json`,
      `packages/engine/src/d.ts:1  imports 'fake-clock'; declare fake-clock in dependencies of packages/engine/package.json`,
    ]);
  });
});

describe('protocol', () => {
  it('may not even import Node’s built-in modules', () => {
    write('packages/protocol/src/a.ts', `import 'node:fs';`);
    write('packages/protocol/src/b.ts', `import 'fs';`);
    write('packages/protocol/src/a.test.ts', `import 'node:fs'; import 'vitest';`);

    expect(findViolations(root)).toEqual([
      `packages/protocol/src/a.ts:1  imports 'node:fs'; protocol may import zod and nothing else`,
      `packages/protocol/src/b.ts:1  imports 'fs'; protocol may import zod and nothing else`,
    ]);
  });
});

describe('every form of import', () => {
  it.each([
    `import x from 'left-pad';`,
    `import type { X } from 'left-pad';`,
    `export { x } from 'left-pad';`,
    `export type { X } from 'left-pad';`,
    `export * from 'left-pad';`,
    `export * as x from 'left-pad';`,
    `const x = await import('left-pad');`,
    `const x = () => import(\`left-pad\`);`,
    `let x: import('left-pad').X;`,
  ])('is found: %s', (text) => {
    write('packages/engine/src/a.ts', text);

    expect(findViolations(root)).toEqual([
      `packages/engine/src/a.ts:1  imports 'left-pad'; declare left-pad in dependencies of packages/engine/package.json`,
    ]);
  });

  it('is found in .tsx, and not in comments, strings, installed or built files', () => {
    write('packages/sdk/src/view.tsx', `import 'react'; const a = <b>import 'x'</b>;`);
    write('packages/sdk/src/a.ts', `// import 'x'\nconst text = "import 'x'";`);
    write('packages/sdk/dist/a.ts', `import 'x';`);
    write('packages/sdk/node_modules/x/a.ts', `import 'x';`);

    expect(findViolations(root)).toEqual([
      `packages/sdk/src/view.tsx:1  imports 'react'; declare react in dependencies of packages/sdk/package.json`,
    ]);
  });

  it('cannot hide in a file that does not parse', () => {
    write('packages/engine/src/a.ts', `import { from 'left-pad'`);

    expect(findViolations(root)).toEqual([
      expect.stringContaining('packages/engine/src/a.ts  cannot be parsed'),
    ]);
  });
});
