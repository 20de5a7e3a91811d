/** How a process ended, in the form that clients of E2B's wire expect. */
import { constants } from 'node:os';

export interface ExitStatus {
  /** -1 when a signal ended the process. */
  readonly exitCode: number;
  /** False when a signal ended the process. */
  readonly exited: boolean;
  readonly status: string;
  readonly error?: string;
  /** The exit code as a shell reports it: the code, or 128 plus the number of the signal. */
  readonly shellCode: number;
}

const SIGNAL_WORDS: Readonly<Record<string, string>> = {
  SIGHUP: 'hangup',
  SIGINT: 'interrupt',
  SIGQUIT: 'quit',
  SIGILL: 'illegal instruction',
  SIGTRAP: 'trace/breakpoint trap',
  SIGABRT: 'aborted',
  SIGBUS: 'bus error',
  SIGFPE: 'floating point exception',
  SIGKILL: 'killed',
  SIGUSR1: 'user defined signal 1',
  SIGSEGV: 'segmentation fault',
  SIGUSR2: 'user defined signal 2',
  SIGPIPE: 'broken pipe',
  SIGALRM: 'alarm clock',
  SIGTERM: 'terminated',
};

export function exitedWith(code: number): ExitStatus {
  const status = `exit status ${code}`;
  return { exitCode: code, exited: true, status, shellCode: code, ...(code === 0 ? {} : { error: status }) };
}

export function endedBy(signal: NodeJS.Signals | number): ExitStatus {
  const name = typeof signal === 'number' ? nameOf(signal) : signal;
  const status = `signal: ${SIGNAL_WORDS[name] ?? name}`;
  const number = typeof signal === 'number' ? signal : constants.signals[signal];
  return { exitCode: -1, exited: false, status, error: status, shellCode: 128 + number };
}

function nameOf(signal: number): string {
  const found = Object.entries(constants.signals).find(([, number]) => number === signal);
  return found?.[0] ?? `signal ${signal}`;
}
