import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  NotFoundError,
  RateLimitError,
  SandboxError,
  SandboxNotFoundError,
  ServiceBusyError,
  TimeoutError,
} from 'e2b';
import { describe, expect, it } from 'vitest';
import { isGone, providerFailure } from './provider-failure.ts';

const gone = new SandboxNotFoundError('Sandbox not found');
const commandFailed = new CommandExitError({
  exitCode: 127,
  error: 'exit status 127',
  stdout: '',
  stderr: 'bash: serve: command not found',
});

describe('an error of the e2b package', () => {
  it.each<[string, unknown]>([
    ['reported by the provider', gone],
    ['wrapped in another error', new Error('The request failed', { cause: gone })],
    ['wrapped twice', new Error('a', { cause: new SandboxError('b') && new Error('c', { cause: gone }) })],
  ])('means that the sandbox is gone when it is %s (R34)', (_, thrown) => {
    expect(isGone(thrown)).toBe(true);
    expect(providerFailure(thrown, 'Looking').code).toBe('expired');
  });

  it.each<[string, unknown]>([
    ['a program says "command not found"', commandFailed],
    ['a file is not found', new FileNotFoundError('not found')],
    ['an id has 404 in it', new SandboxError('502: sandbox i404404 did not answer')],
    ['an application answers 404', new NotFoundError('404: Not Found')],
    ['a text says so', new Error('Sandbox not found')],
    ['another error wraps the failure of a program in the sandbox', new Error('x', { cause: commandFailed })],
    ['nothing is known', 'not found'],
  ])('never means that the sandbox is gone when %s (R35)', (_, thrown) => {
    expect(isGone(thrown)).toBe(false);
    expect(providerFailure(thrown, 'Looking').code).not.toBe('expired');
  });

  it('is converted by its type, and is retryable where it may pass', () => {
    expect(providerFailure(new TimeoutError('x'), 'Looking')).toMatchObject({
      code: 'timeout',
      retryable: true,
    });
    expect(providerFailure(new RateLimitError('x'), 'Looking')).toMatchObject({ code: 'capacity' });
    expect(providerFailure(new ServiceBusyError('x'), 'Looking')).toMatchObject({ code: 'capacity' });
    expect(providerFailure(new AuthenticationError('x'), 'Looking')).toMatchObject({ code: 'forbidden' });
    expect(providerFailure(new SandboxError('502'), 'Looking')).toMatchObject({ code: 'unreachable' });
  });
});
