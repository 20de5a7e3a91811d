import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as e2b from 'e2b';
import * as older from 'e2b-old';
import { describe, expect, it } from 'vitest';
import { LEFT_OUT, publicMethods } from './program/calls.ts';
import type { Package } from './program/chapter.ts';

/** What the packages export beside errors and constants. A new version with more of it fails here until that is sorted. */
const CALLED = ['Sandbox', 'Template', 'TemplateBase', 'Git', 'E2B'];
const NOT_SUPPORTED = ['Volume', 'Secret'];
/** They send no request of their own. */
const WITHOUT_REQUESTS = [
  'ApiClient',
  'ConnectionConfig',
  'LogEntry',
  'LogEntryEnd',
  'LogEntryStart',
  'ReadyCmd',
  'SecretPaginator',
  'defaultBuildLogger',
  'getSignature',
  'waitForFile',
  'waitForPort',
  'waitForProcess',
  'waitForTimeout',
  'waitForURL',
  // `Sandbox` again.
  'default',
];

const directory = join(import.meta.dirname, 'program');
const names = (await readdir(directory)).filter((name) => name !== 'calls.ts');
const program = (await Promise.all(names.map((name) => readFile(join(directory, name), 'utf8')))).join('\n');
const page = await readFile(join(import.meta.dirname, '../../docs/coming-from-e2b.md'), 'utf8');
const [, notSupported = ''] = page.split('| not supported yet, or different |');

describe.each([
  ['e2b', e2b],
  ['e2b, an earlier version', older],
])('every export of %s', (_, exported) => {
  it('is called by the program, sends no request, or is on the list of what is not supported', () => {
    const functions = Object.entries(exported).filter(
      ([name, value]) => typeof value === 'function' && !/Error$/.test(name),
    );
    const known = [...CALLED, ...NOT_SUPPORTED, ...WITHOUT_REQUESTS];
    expect(functions.map(([name]) => name).filter((name) => !known.includes(name))).toEqual([]);
    for (const name of NOT_SUPPORTED) expect(notSupported).toContain(`\`${name}\``);
  });

  it('has no public method that the program does not call, except those on the list', () => {
    const { Sandbox } = exported as unknown as Package;
    const made = new (Sandbox as unknown as new (options: object) => InstanceType<Package['Sandbox']>)({
      sandboxId: 'a',
      sandboxDomain: 'localhost',
      envdVersion: '0.6.13',
      apiKey: `e2b_${'0'.repeat(64)}`,
    });
    const methods = publicMethods(exported as unknown as Package, made);
    expect(methods.length).toBeGreaterThan(100);
    const called = ({ method }: { method: string }) => new RegExp(`\\b${method}\\(`).test(program);
    const never = methods.filter((one) => !called(one)).map(({ name }) => name);
    expect(never.filter((name) => !LEFT_OUT.includes(name))).toEqual([]);
    for (const name of LEFT_OUT) expect(notSupported).toContain(`\`${name.replace(/^.*\./, '')}\``);
  });
});
