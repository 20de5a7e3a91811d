import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { ProgramFailure } from './program-failure.ts';
import { programOutput, runProgram } from './run-program.ts';

const options = { signal: unhurried, timeoutMs: 20_000 };

describe('runProgram', () => {
  it('resolves to the exit status and the output', async () => {
    const result = await runProgram('sh', ['-c', 'echo out; echo err >&2; exit 3'], options);

    expect(result).toEqual({ status: 3, stdout: 'out\n', stderr: 'err\n' });
  });

  it('passes arguments unchanged', async () => {
    const { stdout } = await runProgram('printf', ['%s', '$(id) `id` "x" ; y'], options);

    expect(stdout).toBe('$(id) `id` "x" ; y');
  });

  it('passes nothing of the environment but the search path', async () => {
    const { stdout } = await runProgram('env', [], options);

    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.split('=')[0]),
    ).toEqual(['PATH', 'LC_ALL']);
  });

  it('adds the variables of the caller, the input and the working directory', async () => {
    const { stdout } = await runProgram('sh', ['-c', 'echo "$EXTRA $PWD $(cat)"'], {
      ...options,
      env: { EXTRA: 'more' },
      cwd: '/usr',
      input: 'text',
    });

    expect(stdout).toBe('more /usr text\n');
  });

  it('writes the output into a file and does not wait for processes that the program leaves running', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-c-'));
    const outputFile = join(directory, 'output');

    const { status } = await runProgram('sh', ['-c', 'sleep 5 & echo $!'], { ...options, outputFile });

    const left = Number(await readFile(outputFile, 'utf8'));
    await rm(directory, { recursive: true });
    expect(status).toBe(0);
    expect(process.kill(left, 'SIGKILL')).toBe(true);
  });

  it('kills a program that exceeds the timeout', async () => {
    const failed = await runProgram('sh', ['-c', 'exec sleep 60'], {
      signal: unhurried,
      timeoutMs: 50,
    }).catch((thrown: unknown) => thrown);

    expect(failed).toMatchObject({ code: 'timeout' });
  });

  it('kills a program on abort and rejects with the reason of the abort', async () => {
    const abort = new AbortController();
    const running = runProgram('sleep', ['60'], { ...options, signal: abort.signal });
    abort.abort(new Error('enough'));

    await expect(running).rejects.toThrow('enough');
    await expect(runProgram('true', [], { ...options, signal: abort.signal })).rejects.toThrow('enough');
  });

  it('names a program that is not installed', async () => {
    await expect(runProgram('no-such-program', [], options)).rejects.toMatchObject({
      code: 'capability_unsupported',
      message: 'The program no-such-program is not installed.',
    });
  });
});

describe('programOutput', () => {
  it('resolves to stdout after exit status 0 or an accepted one', async () => {
    expect(await programOutput('echo', ['one'], options)).toBe('one\n');
    const accepting = { ...options, acceptedStatuses: [1] };
    expect(await programOutput('sh', ['-c', 'echo some; exit 1'], accepting)).toBe('some\n');
  });

  it('rejects any other exit status with stderr', async () => {
    const failure = await programOutput('sh', ['-c', 'echo sorry >&2; exit 3'], options).catch(
      (thrown: unknown) => thrown,
    );

    expect(failure).toBeInstanceOf(ProgramFailure);
    expect(failure).toMatchObject({ code: 'internal', status: 3, message: 'sh failed: sorry' });
  });
});
