import { describe, expect, it } from 'vitest';
import { isSentryOf, recognise } from './sentries.ts';

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
    expect(await isSentryOf(process.pid, ROOT, 'abc-1')).toBe(false);
  });
});
