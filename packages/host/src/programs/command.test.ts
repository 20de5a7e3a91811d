import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { runCommand } from './command.ts';

const options = { signal: unhurried, boundMs: 20_000 };

describe('a command', () => {
  it('tells how it ended and what it printed', async () => {
    const ended = await runCommand('sh', ['-c', 'echo out; echo err >&2; exit 3'], options);

    expect(ended).toEqual({ status: 3, stdout: 'out\n', stderr: 'err\n' });
  });

  it('is given its arguments as they are', async () => {
    const { stdout } = await runCommand('printf', ['%s', '$(id) `id` "x" ; y'], options);

    expect(stdout).toBe('$(id) `id` "x" ; y');
  });

  it('knows nothing of the environment but the search path', async () => {
    const { stdout } = await runCommand('env', [], options);

    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.split('=')[0]),
    ).toEqual(['PATH', 'LC_ALL']);
  });

  it('prints into a file, and what it leaves running is not waited for', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-c-'));
    const output = join(directory, 'output');

    const { status } = await runCommand('sh', ['-c', 'sleep 5 & echo $!'], { ...options, output });

    const left = Number(await readFile(output, 'utf8'));
    await rm(directory, { recursive: true });
    expect(status).toBe(0);
    expect(process.kill(left, 'SIGKILL')).toBe(true);
  });

  it('is dead when its time is over', async () => {
    const failed = await runCommand('sh', ['-c', 'exec sleep 60'], { signal: unhurried, boundMs: 50 }).catch(
      (thrown: unknown) => thrown,
    );

    expect(failed).toMatchObject({ code: 'timeout' });
  });

  it('is dead when it was aborted, and the reason is the one that was given', async () => {
    const abort = new AbortController();
    const running = runCommand('sleep', ['60'], { ...options, signal: abort.signal });
    abort.abort(new Error('enough'));

    await expect(running).rejects.toThrow('enough');
    await expect(runCommand('true', [], { ...options, signal: abort.signal })).rejects.toThrow('enough');
  });

  it('that is not installed is named', async () => {
    await expect(runCommand('no-such-program', [], options)).rejects.toMatchObject({
      code: 'capability_unsupported',
      message: 'The program no-such-program is not installed.',
    });
  });
});
