/**
 * The errors of requests that are not passed on, or not answered. Each says in `dispatched` whether a program in the
 * sandbox may have seen the request: a client may repeat a request that was never dispatched.
 */
import { type ErrorDetails, lostDetails, type SandboxId, TorporError } from '@torpor/protocol';
import type { SandboxInfo } from '../sandbox-directory.ts';

export function unknownSandbox(sandboxId: SandboxId): TorporError {
  return new TorporError('not_found', 'There is no sandbox with this name.', {
    sandboxId,
    hint: 'Check the address. Sandboxes that were removed long ago are no longer known.',
    details: { dispatched: false },
  });
}

/** A sandbox that will never run again. */
export function sandboxGone({ id, state, reason, lostCheckpoint }: SandboxInfo): TorporError {
  const extra: ErrorDetails = {
    sandboxId: id,
    details: { dispatched: false, state, ...(reason === null ? {} : { reason }) },
  };
  if (state === 'lost') {
    const { checkpointId, details } = lostDetails({ reason, lostCheckpoint });
    return new TorporError('lost', 'The sandbox is lost.', {
      ...extra,
      ...(checkpointId === undefined ? {} : { checkpointId }),
      details: { ...extra.details, ...details },
    });
  }
  if (state === 'failed') {
    return new TorporError('conflict', 'The sandbox failed before it ever ran.', {
      ...extra,
      hint: 'The events of the sandbox say what went wrong. Create a new sandbox.',
    });
  }
  return new TorporError('killed', 'The sandbox was killed.', extra);
}

/** The sandbox sleeps, and its creator has turned waking by requests off. */
export function autoResumeOff({ id }: SandboxInfo): TorporError {
  return new TorporError('conflict', 'The sandbox sleeps, and requests do not wake it.', {
    sandboxId: id,
    hint: 'Resume the sandbox first: its autoResume is off.',
    details: { dispatched: false, state: 'paused' },
  });
}

/** For health questions, which must not wake the sandbox. */
export function notRunning(): TorporError {
  return new TorporError('conflict', 'The sandbox does not run.', { details: { dispatched: false } });
}

export function portClosed(sandboxId: SandboxId, port: number, openPorts: readonly number[]): TorporError {
  return new TorporError('port_closed', `The sandbox runs, but nothing listens on port ${port}.`, {
    sandboxId,
    details: { dispatched: false, port, openPorts },
  });
}

export function stillStarting(sandboxId: SandboxId, port: number, service: string): TorporError {
  return new TorporError('unreachable', `The service "${service}" on port ${port} is still starting.`, {
    sandboxId,
    retryAfterMs: 2_000,
    hint: 'Try again in a moment. `torpor logs` shows the output of the service.',
    details: { dispatched: false, port, service },
  });
}

/** The request was queued for as long as `holdMs` allows. */
export function queuedTooLong(sandboxId: SandboxId, ms: number): TorporError {
  return new TorporError('unreachable', `The sandbox was not ready within ${ms} ms.`, {
    sandboxId,
    retryAfterMs: 2_000,
    hint: 'The sandbox is still starting and has not seen the request: send it again.',
    details: { dispatched: false },
  });
}

export function tooManyActive(sandboxId: SandboxId): TorporError {
  return new TorporError('capacity', 'Too many requests are under way to this sandbox.', {
    sandboxId,
    retryAfterMs: 2_000,
    details: { dispatched: false },
  });
}

export function serverStopping(): TorporError {
  return new TorporError('unreachable', 'The server is stopping.', {
    retryAfterMs: 1_000,
    details: { dispatched: false },
  });
}

/** The sandbox was paused or killed, or the server stops, before the app had answered. */
export function cutByPause(sandboxId: SandboxId): TorporError {
  return new TorporError('unreachable', 'The sandbox stopped before it had answered.', {
    sandboxId,
    retryable: false,
    retryAfterMs: 1_000,
    hint: 'The request reached the app, which may have acted on it. Check before you send it again.',
    details: { dispatched: true },
  });
}

/** The program took the request and closed the connection, or answered with something that is not HTTP. */
export function badAppResponse(sandboxId: SandboxId, port: number, cause: unknown): TorporError {
  return new TorporError('no_answer', `The program on port ${port} gave no valid answer.`, {
    sandboxId,
    retryable: false,
    details: { dispatched: true, port },
    cause,
  });
}

/** The same error with `dispatched: false`. */
export function notDispatched(error: TorporError, sandboxId: SandboxId): TorporError {
  const { code, message, ...extra } = error.toBody();
  return new TorporError(code, message, {
    sandboxId,
    ...(error.retryable ? { retryAfterMs: 2_000 } : {}),
    ...extra,
    details: { ...extra.details, dispatched: false },
    cause: error.cause,
  });
}
