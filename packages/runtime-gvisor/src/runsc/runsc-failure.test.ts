import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lastLogged, runscFailure } from './runsc-failure.ts';

const failed = {
  subcommand: 'checkpoint',
  container: 'c',
  status: 128,
  output: 'checkpoint failed: why',
} as const;

describe('a failure of runsc', () => {
  it('has the first line as its message, without the call stack of the sentry', () => {
    const output = 'restoring container "c": header error: EOF:\ngoroutine 6 [running]:\nstate.go:309';

    expect(runscFailure({ ...failed, subcommand: 'restore', output }, null).message).toBe(
      'runsc restore failed: restoring container "c": header error: EOF',
    );
  });

  it.each([
    ['statefile error: no space left on device', 'storage_full'],
    ['open image: disk quota exceeded', 'storage_full'],
    ['mkdir image: read-only file system', 'storage_readonly'],
    ['something else', 'internal'],
  ])('has the code of a storage failure that runsc reported: %s', (output, code) => {
    expect(runscFailure({ ...failed, output }, { is: 'frozen', pid: 1 }).code).toBe(code);
  });

  it.each([
    ['checkpoint', { is: 'absent' }, 'not_found'],
    ['checkpoint', { is: 'gone' }, 'conflict'],
    ['checkpoint', { is: 'created', pid: 1 }, 'conflict'],
    ['start', { is: 'running', pid: 1 }, 'conflict'],
    ['pause', { is: 'running', pid: 1 }, 'internal'],
    ['pause', null, 'internal'],
    ['delete', { is: 'gone' }, 'internal'],
  ] as const)('of %s with state %o is %s', (subcommand, state, code) => {
    expect(runscFailure({ ...failed, subcommand: subcommand }, state).code).toBe(code);
  });

  it('without a message says so', () => {
    expect(runscFailure({ ...failed, output: '' }, null).message).toBe(
      'runsc checkpoint failed: it did not say why',
    );
  });
});

describe('the last message of the log', () => {
  it('is found among objects without separators, past the offset', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-l-'));
    const log = join(directory, 'runsc.log');
    const old = JSON.stringify({ msg: 'old', level: 'error' });
    const tricky = 'it output {"msg":"no"}{"msg":';
    await writeFile(log, `${old}${JSON.stringify({ msg: 'new' })}${JSON.stringify({ msg: tricky })}`);

    expect(await lastLogged(log, old.length)).toBe(tricky);
    expect(await lastLogged(log, 100_000)).toBe('');
    expect(await lastLogged(join(directory, 'none'), 0)).toBe('');
    await rm(directory, { recursive: true });
  });
});
