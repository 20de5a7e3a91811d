import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { KnownSentries, recognise } from './sentries.ts';

const ROOT = '/data/gvisor/root';
const SENTRY = ['runsc-sandbox', '--network=sandbox', `--root=${ROOT}`, 'boot', '--bundle=/data/b', 'abc-1'];
const GOFER = ['runsc-gofer', `--root=${ROOT}`, 'gofer', '--bundle=/data/b', '--io-fds=4,5'];

describe('the command line of a process', () => {
  it('names the container of a sentry and the bundle of a gofer', () => {
    expect(recognise(SENTRY, ROOT)).toEqual({ container: 'abc-1', bundle: '/data/b' });
    expect(recognise(GOFER, ROOT)).toEqual({ container: null, bundle: '/data/b' });
  });

  it.each([
    ['another server has started', SENTRY, '/other/root'],
    ['lies under a root that begins alike', SENTRY, '/data/gvisor'],
    ['is another program', ['cat', ...SENTRY], ROOT],
    ['is nothing', [], ROOT],
  ])('is not ours when it is what %s', (_, argv, root) => {
    expect(recognise(argv, root)).toBeUndefined();
  });

  it('tells a process that has come by the number of a sentry', async () => {
    expect(await new KnownSentries(ROOT).isSentryOf(process.pid, 'abc-1')).toBe(false);
  });
});

describe('a sentry that is known', () => {
  it('is known for as long as it lives, and no other in its place', async () => {
    const sentries = new KnownSentries(ROOT);
    const script = ['-c', 'read -r _', ...SENTRY.slice(1)];
    const first = spawn('sh', script, { argv0: 'runsc-sandbox' });
    const pid = first.pid as number;
    const ended = once(first, 'exit');
    expect(await sentries.isSentryOf(pid, 'abc-1')).toBe(true);
    expect(await sentries.isSentryOf(pid, 'abc-1')).toBe(true);
    expect(await sentries.isSentryOf(pid, 'abc-2')).toBe(false);
    expect(await sentries.isSentryOf(process.pid, 'abc-1')).toBe(false);
    first.kill('SIGKILL');
    await ended;
    expect(await sentries.isSentryOf(pid, 'abc-1')).toBe(false);
  });
});
