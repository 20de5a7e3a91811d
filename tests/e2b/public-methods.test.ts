import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as e2b from 'e2b';
import * as older from 'e2b-old';
import { describe, expect, it } from 'vitest';
import { CALLED_CLASSES } from './program/calls.ts';
import { declaredMethods } from './program/declared-methods.ts';

/** What the packages export beside errors and constants. A new version with more of it fails here until that is sorted. */
const CALLED = ['Sandbox', 'Template', 'Git', 'E2B'];
const NOT_SUPPORTED = ['Volume', 'Secret'];
/** They send no request of their own. */
const WITHOUT_REQUESTS = [
  ...['ApiClient', 'ConnectionConfig', 'LogEntry', 'LogEntryEnd', 'LogEntryStart', 'ReadyCmd'],
  ...['SecretPaginator', 'defaultBuildLogger', 'getSignature'],
  ...['waitForFile', 'waitForPort', 'waitForProcess', 'waitForTimeout', 'waitForURL'],
  // `Sandbox` and `Template` again.
  ...['default', 'TemplateBase'],
];
/** Declared, and exported as types at most. They send no request of their own, or are only extended. */
const INTERNAL = ['ClientFactory', 'EnvdApiClient', 'Paginator', 'VolumeConnectionConfig', 'Signal'];

const directory = join(import.meta.dirname, 'program');
const names = (await readdir(directory)).filter((name) => !/^(calls|declared-methods)\.ts$/.test(name));
const program = (await Promise.all(names.map((name) => readFile(join(directory, name), 'utf8')))).join('\n');
const page = await readFile(join(import.meta.dirname, '../../docs/coming-from-e2b.md'), 'utf8');
const [, notSupported = ''] = page.split('| not supported yet, or different |');

describe.each([
  ['e2b', e2b],
  ['e2b-old', older],
] as const)('every export of %s', (name, exported) => {
  it('is called by the program, sends no request, or is on the list of what is not supported', () => {
    const functions = Object.entries(exported).filter(
      ([one, value]) => typeof value === 'function' && !/Error$/.test(one),
    );
    const known = [...CALLED, ...NOT_SUPPORTED, ...WITHOUT_REQUESTS];
    expect(functions.map(([one]) => one).filter((one) => !known.includes(one))).toEqual([]);
    for (const one of CALLED) expect(program).toMatch(new RegExp(`\\b${one}\\b`));
    for (const one of NOT_SUPPORTED) expect(notSupported).toContain(`\`${one}\``);
  });

  it('has no public method in its type declarations that the program does not call, except those on the list', async () => {
    const declared = await declaredMethods(name);
    const sorted = [...CALLED_CLASSES, ...CALLED, ...NOT_SUPPORTED, ...WITHOUT_REQUESTS, ...INTERNAL];
    expect([...declared.keys()].filter((one) => !sorted.includes(one))).toEqual([]);
    const methods = CALLED_CLASSES.flatMap((type) =>
      (declared.get(type) ?? []).map((method) => [type, method.replace('static ', '')]),
    );
    expect(methods.length).toBeGreaterThan(110);
    const never = methods.filter(([, method]) => !new RegExp(`\\b${method}\\(`).test(program));
    expect(never).toEqual([]);
  });
});
