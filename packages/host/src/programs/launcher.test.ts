import { describe, expect, it } from 'vitest';
import { type LaunchRequest, sharedLauncher } from './launcher.ts';

const env = { PATH: '/usr/bin:/bin' };
const launch = (request: LaunchRequest, signal?: AbortSignal) => sharedLauncher.launch(request, signal);
const sh = (script: string, signal?: AbortSignal) =>
  launch({ program: 'sh', args: ['-c', script], env }, signal);

describe('the launcher', () => {
  it('runs programs side by side and reports the result of each', async () => {
    const results = await Promise.all([
      sh('sleep 0.1; echo slow'),
      sh('echo quick; exit 2'),
      sh('kill -9 $$'),
    ]);
    expect(results).toEqual([
      { status: 0, stdout: 'slow\n', stderr: '' },
      { status: 2, stdout: 'quick\n', stderr: '' },
      { status: null, stdout: '', stderr: '' },
    ]);
  });

  it('writes the input, which a program need not read', async () => {
    const input = 'x'.repeat(1_000_000);
    const counted = await launch({ program: 'wc', args: ['-c'], env, input });
    expect(counted.stdout.trim()).toBe('1000000');
    expect((await launch({ program: 'true', args: [], env, input })).status).toBe(0);
  });

  it('schedules programs and their children as batch work', async () => {
    const { stdout } = await sh('cat /proc/$$/stat; cat /proc/self/stat');
    const policies = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(') ')[1]?.split(' ')[38]);
    const BATCH = '3';
    expect(policies).toEqual([BATCH, BATCH]);
  });

  it('sends a line to a program that waits for it, or kills the program', async () => {
    const request = {
      program: 'sh',
      args: ['-c', 'read -r line && echo released'],
      env,
      waitsForLine: true,
    };
    const [released, killed] = [sharedLauncher.start(request), sharedLauncher.start(request)];
    released.sendLine();
    killed.kill();
    expect(await released.ended).toEqual({ status: 0, stdout: 'released\n', stderr: '' });
    expect((await killed.ended).status).toBeNull();
  });

  it('kills a program on abort, also when the abort comes before the start', async () => {
    const stop = new AbortController();
    const running = sh('exec sleep 60', stop.signal);
    stop.abort();
    expect((await running).status).toBeNull();
    expect((await sh('exec sleep 60', stop.signal)).status).toBeNull();
  });

  it('rejects with the errno code when a program cannot be started', async () => {
    await expect(launch({ program: 'no-such-program', args: [], env })).rejects.toMatchObject({
      code: 'ENOENT',
    });
    const outputFile = '/nonexistent/file';
    await expect(launch({ program: 'true', args: [], env, outputFile })).rejects.toMatchObject({
      code: 'ENOENT',
    });
  });

  it('rejects all running programs when the launcher process dies, and starts another for the next', async () => {
    const others = sh('sleep 2').catch((thrown: unknown) => thrown);
    await expect(sh('kill -9 $PPID; sleep 1')).rejects.toMatchObject({ code: 'internal' });
    expect(await others).toMatchObject({ code: 'internal' });
    expect((await sh('echo again')).stdout).toBe('again\n');
  });
});
