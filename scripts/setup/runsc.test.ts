import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findRunsc as findAsServer } from '../../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { hasUsableRunsc, mirrorAmong } from './runsc.mjs';

let top: string;
let places: { readonly path: string; readonly dataDir: string; readonly machineWide: string };

beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'torpor-runsc-test-'));
  places = { path: join(top, 'bin'), dataDir: join(top, 'data'), machineWide: join(top, 'machine') };
});

afterEach(() => rmSync(top, { recursive: true }));

function put(directory: string, version: string): string {
  const program = join(top, directory, 'runsc');
  mkdirSync(join(top, directory), { recursive: true });
  writeFileSync(program, `#!/bin/sh\necho 'runsc version ${version}'\n`);
  chmodSync(program, 0o755);
  return program;
}

describe('a usable runsc', () => {
  it.each([
    { name: 'does not exist', there: [] },
    { name: 'may be on the path', there: ['bin 0.0~20240729.0'] },
    {
      name: 'is not an old one',
      there: ['bin 0.0~20221219.0', 'data/gvisor/runsc release-20250101.0'],
    },
    {
      name: 'may be machine-wide',
      there: ['machine/0.0~20240729.0-9 0.0~20240729.0', 'machine/0.0~20240729.0-10 0.0~20240729.0'],
    },
    { name: 'is not one without a date in its version', there: ['bin VERSION_MISSING'] },
  ])('$name, for the setup and for the server', async ({ there }) => {
    for (const one of there) put(...(one.split(' ') as [string, string]));

    const { found } = await findAsServer(places, new AbortController().signal);

    expect(hasUsableRunsc(places)).toBe(found !== null);
    expect(hasUsableRunsc(places)).toBe(there.some((one) => !/2022|MISSING/.test(one)));
  });
});

describe("the machine's mirror of Debian", () => {
  it('is the one that has the release and its updates', () => {
    const targets = [
      'https://apt.example.net/ main bookworm',
      'http://mirror.example.org/debian-security/ main bookworm-security',
      'http://mirror.example.org/debian/ main bookworm',
      'http://mirror.example.org/debian/ contrib bookworm',
      'http://mirror.example.org/debian/ main bookworm-updates',
    ].join('\n');

    expect(mirrorAmong(targets)).toBe('http://mirror.example.org/debian/');
  });

  it('is none where the machine is not a Debian', () => {
    const targets = [
      'http://archive.ubuntu.com/ubuntu/ main noble',
      'http://archive.ubuntu.com/ubuntu/ main noble-updates',
    ];

    expect(mirrorAmong(targets.join('\n'))).toBeUndefined();
    expect(mirrorAmong('')).toBeUndefined();
  });
});
