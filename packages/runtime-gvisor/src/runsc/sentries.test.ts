import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { describe, expect, it, vi } from 'vitest';
import { KnownSentries, recognise, runscProcesses } from './sentries.ts';

const ROOT = '/data/gvisor/root';
const SENTRY = ['runsc-sandbox', '--network=sandbox', `--root=${ROOT}`, 'boot', '--bundle=/data/b', 'abc-1'];
const GOFER = ['runsc-gofer', `--root=${ROOT}`, 'gofer', '--bundle=/data/b', '--io-fds=4,5'];

describe('the command line of a process', () => {
  it('names the container of a sentry and the bundle of a gofer', () => {
    expect(recognise(SENTRY, ROOT)).toEqual({ container: 'abc-1', bundle: '/data/b' });
    expect(recognise(GOFER, ROOT)).toEqual({ container: null, bundle: '/data/b' });
  });

  it.each([
    ['of a process of another server', SENTRY, '/other/root'],
    ['with a root that has the same prefix', SENTRY, '/data/gvisor'],
    ['of another program', ['cat', ...SENTRY], ROOT],
    ['that is empty', [], ROOT],
  ])('is not recognised when it is one %s', (_, argv, root) => {
    expect(recognise(argv, root)).toBeUndefined();
  });

  it('distinguishes a process that was given the pid of a sentry later', async () => {
    expect(await new KnownSentries(ROOT).isSentryOf(process.pid, 'abc-1')).toBe(false);
  });
});

describe('a known sentry', () => {
  it('is recognised as long as it lives, and no other process instead of it', async () => {
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

  it('still lives when it has no command line any more, as while it ends', async () => {
    const sentries = new KnownSentries(ROOT);
    const script = ['-c', 'read -r _; exec sleep 1000', ...SENTRY.slice(1)];
    const child = spawn('sh', script, { argv0: 'runsc-sandbox', stdio: ['pipe', 'ignore', 'ignore'] });
    const pid = child.pid as number;
    const ended = once(child, 'exit');
    expect(await sentries.isSentryOf(pid, 'abc-1')).toBe(true);
    child.stdin.write('\n');
    await vi.waitFor(async () => expect(await readFile(`/proc/${pid}/cmdline`, 'utf8')).not.toContain(ROOT));
    expect(await runscProcesses(ROOT)).toEqual([]);
    expect(await sentries.living('abc-1')).toMatchObject({ pid });
    child.kill('SIGKILL');
    await ended;
    expect(await sentries.living('abc-1')).toBeUndefined();
  });

  it('is recognised by a command line of any length', async () => {
    const script = ['-c', 'read -r _', ...SENTRY.slice(1, -1), 'x'.repeat(20_000), 'abc-1'];
    const long = spawn('sh', script, { argv0: 'runsc-sandbox' });
    const ended = once(long, 'exit');
    expect(await new KnownSentries(ROOT).isSentryOf(long.pid as number, 'abc-1')).toBe(true);
    long.kill('SIGKILL');
    await ended;
  });
});
