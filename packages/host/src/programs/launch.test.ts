import { describe, expect, it } from 'vitest';
import { launch, usualLauncher } from './launch.ts';

const env = { PATH: '/usr/bin:/bin' };
const sh = (script: string, signal?: AbortSignal) =>
  launch({ program: 'sh', args: ['-c', script], env }, signal);

describe('programs', () => {
  it('are started side by side, each with its own end', async () => {
    const ends = await Promise.all([sh('sleep 0.1; echo slow'), sh('echo quick; exit 2'), sh('kill -9 $$')]);
    expect(ends).toEqual([
      { status: 0, stdout: 'slow\n', stderr: '' },
      { status: 2, stdout: 'quick\n', stderr: '' },
      { status: null, stdout: '', stderr: '' },
    ]);
  });

  it('get their input, and may leave it unread', async () => {
    const input = 'x'.repeat(1_000_000);
    const counted = await launch({ program: 'wc', args: ['-c'], env, input });
    expect(counted.stdout.trim()).toBe('1000000');
    expect((await launch({ program: 'true', args: [], env, input })).status).toBe(0);
  });

  it('do not push aside who wakes them, and nor does what they start', async () => {
    const { stdout } = await sh('cat /proc/$$/stat; cat /proc/self/stat');
    const policies = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(') ')[1]?.split(' ')[38]);
    const BATCH = '3';
    expect(policies).toEqual([BATCH, BATCH]);
  });

  it('that wait are told to go on', async () => {
    const order = { program: 'sh', args: ['-c', 'read -r line && echo told'], env, waits: true };
    const [told, killed] = [usualLauncher.start(order), usualLauncher.start(order)];
    told.tell();
    killed.kill();
    expect(await told.ended).toEqual({ status: 0, stdout: 'told\n', stderr: '' });
    expect((await killed.ended).status).toBeNull();
  });

  it('are killed for somebody who has given up, even before they were started', async () => {
    const enough = new AbortController();
    const running = sh('exec sleep 60', enough.signal);
    enough.abort();
    expect((await running).status).toBeNull();
    expect((await sh('exec sleep 60', enough.signal)).status).toBeNull();
  });

  it('that cannot be started say why', async () => {
    await expect(launch({ program: 'no-such-program', args: [], env })).rejects.toMatchObject({
      code: 'ENOENT',
    });
    const output = '/nonexistent/file';
    await expect(launch({ program: 'true', args: [], env, output })).rejects.toMatchObject({
      code: 'ENOENT',
    });
  });

  it('fail together when the process that starts them ends, and the next are started by another', async () => {
    const others = sh('sleep 2').catch((thrown: unknown) => thrown);
    await expect(sh('kill -9 $PPID; sleep 1')).rejects.toMatchObject({ code: 'internal' });
    expect(await others).toMatchObject({ code: 'internal' });
    expect((await sh('echo again')).stdout).toBe('again\n');
  });
});
