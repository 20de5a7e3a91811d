import { describe, expect, it } from 'vitest';
import { endedBy, exitedWith } from './exit-status.ts';

describe('the status of an exit', () => {
  it('has no error for exit code 0', () => {
    expect(exitedWith(0)).toEqual({ exitCode: 0, exited: true, status: 'exit status 0', shellCode: 0 });
  });

  it('contains the exit code', () => {
    expect(exitedWith(3)).toEqual({
      exitCode: 3,
      exited: true,
      status: 'exit status 3',
      error: 'exit status 3',
      shellCode: 3,
    });
  });

  it('contains the signal, given by name or by number', () => {
    const status = 'signal: killed';
    const killed = { exitCode: -1, exited: false, status, error: status, shellCode: 137 };
    expect(endedBy('SIGKILL')).toEqual(killed);
    expect(endedBy(9)).toEqual(killed);
    expect(endedBy('SIGSYS').status).toBe('signal: SIGSYS');
    expect(endedBy(250).status).toBe('signal: signal 250');
  });
});
