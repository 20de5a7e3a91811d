/**
 * What an admission queue knows about its port, and so how many connections it opens at once. Events that the table does
 * not list are ignored.
 */
import type { SandboxRun } from './gate-mode.ts';

/** How long a closed port is tried again before the waiting requests are refused. */
export interface PortGrace {
  readonly ms: number;
  /** The declared service that is still starting, if it is the reason for the grace. */
  readonly starting: string | undefined;
}

/** `since`: when the port was first found closed. A later attempt must not start the grace again. */
export type RunningPortGrace = PortGrace & { readonly since: number };

type PortModeName =
  /** No connection attempt has ended in this run: one attempt at a time. */
  | 'untried'
  /** A connection was opened in this run: several attempts at a time. */
  | 'answering'
  /** An attempt failed: none until the delay is over. */
  | 'backing_off'
  /** The delay is over: one attempt at a time. */
  | 'retrying'
  /** The grace is over: no attempt until the waiting requests are refused. */
  | 'refusing';

export interface PortMode {
  readonly name: PortModeName;
  /** The run of the sandbox that the mode is about; undefined in `untried`. */
  readonly run: SandboxRun | undefined;
  readonly grace: RunningPortGrace | undefined;
  /** The delay of the present or next back-off. */
  readonly delayMs: number;
}

export type PortEvent =
  | 'connected'
  | 'connect_failed'
  | 'delay_over'
  /** The port is still closed and its grace is over. */
  | 'grace_over'
  /** The requests that waited have got their error. */
  | 'refused';

const PORT_TRANSITIONS: Readonly<Record<PortModeName, Readonly<Partial<Record<PortEvent, PortModeName>>>>> = {
  untried: { connected: 'answering', connect_failed: 'backing_off', grace_over: 'refusing' },
  answering: { connected: 'answering', connect_failed: 'backing_off', grace_over: 'refusing' },
  // Attempts of one batch may end differently. The first failure counts, and any success ends the back-off.
  backing_off: { connected: 'answering', delay_over: 'retrying' },
  retrying: { connected: 'answering', connect_failed: 'backing_off', grace_over: 'refusing' },
  refusing: { connected: 'answering', refused: 'retrying' },
};

const FIRST_DELAY_MS = 5;
const MAX_DELAY_MS = 200;

export const INITIAL_PORT_MODE: PortMode = {
  name: 'untried',
  run: undefined,
  grace: undefined,
  delayMs: FIRST_DELAY_MS,
};

/** `about`: the run of the attempt, and the grace that is left after it. */
export function portModeAfter(
  mode: PortMode,
  event: PortEvent,
  about: Partial<Pick<PortMode, 'run' | 'grace'>> = {},
): PortMode {
  const name = PORT_TRANSITIONS[mode.name][event];
  if (name === undefined) return mode;
  const { run = mode.run, grace } = about;
  switch (event) {
    case 'connected':
      return { ...INITIAL_PORT_MODE, name, run };
    case 'connect_failed':
      return { name, run, grace, delayMs: modeInRun(mode, run).delayMs };
    case 'delay_over':
      return { ...mode, name, delayMs: Math.min(2 * mode.delayMs, MAX_DELAY_MS) };
    case 'grace_over':
      return { name, run, grace: undefined, delayMs: modeInRun(mode, run).delayMs };
    case 'refused':
      return { ...mode, name };
  }
}

/** The mode of the port in this run of the sandbox. A mode of another run says nothing about the port. */
export function modeInRun(mode: PortMode, run: SandboxRun | undefined): PortMode {
  return mode.run === run ? mode : INITIAL_PORT_MODE;
}
