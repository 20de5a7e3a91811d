/** The end of a command as a shell reports it: a signal is 128 plus its number. */
import { constants } from 'node:os';
import type { ProcessEvent_EndEvent } from '@torpor/envd';

export interface CommandEnd {
  readonly exitCode: number;
  readonly signal: string | null;
}

/** The agent protocol's names of signals. */
const SIGNALS: Readonly<Record<string, NodeJS.Signals>> = {
  hangup: 'SIGHUP',
  interrupt: 'SIGINT',
  quit: 'SIGQUIT',
  'illegal instruction': 'SIGILL',
  'trace/breakpoint trap': 'SIGTRAP',
  aborted: 'SIGABRT',
  'bus error': 'SIGBUS',
  'floating point exception': 'SIGFPE',
  killed: 'SIGKILL',
  'user defined signal 1': 'SIGUSR1',
  'segmentation fault': 'SIGSEGV',
  'user defined signal 2': 'SIGUSR2',
  'broken pipe': 'SIGPIPE',
  'alarm clock': 'SIGALRM',
  terminated: 'SIGTERM',
};

export function endOf({
  exited,
  exitCode,
  status,
}: Pick<ProcessEvent_EndEvent, 'exited' | 'exitCode' | 'status'>): CommandEnd {
  if (exited) return { exitCode, signal: null };
  const word = status.slice('signal: '.length);
  const signal = SIGNALS[word] ?? word;
  const number = constants.signals[signal as NodeJS.Signals] ?? 0;
  return { exitCode: 128 + number, signal };
}
