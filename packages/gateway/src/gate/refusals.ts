/**
 * Why a request is not passed on, each case with its own words. All of them say whether anything inside the
 * sandbox has seen the request: a client may send again what was never dispatched.
 */
import { type ErrorDetails, lostDetails, type SandboxId, TorporError } from '@torpor/protocol';
import type { SandboxFacts } from '../sandboxes.ts';

export function unknownSandbox(sandboxId: SandboxId): TorporError {
  return new TorporError('not_found', 'There is no sandbox of this name.', {
    sandboxId,
    hint: 'Check the address. Sandboxes that were removed long ago are forgotten.',
    details: { dispatched: false },
  });
}

/** A sandbox that will never run again. */
export function sandboxGone({ id, state, reason, lostCheckpoint }: SandboxFacts): TorporError {
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
    return new TorporError('conflict', 'The sandbox never came to run.', {
      ...extra,
      hint: 'Its events say what went wrong. Create a new one.',
    });
  }
  return new TorporError('killed', 'The sandbox was killed.', extra);
}

/** It sleeps, and whoever made it does not want that a visit wakes it. */
export function autoResumeOff({ id }: SandboxFacts): TorporError {
  return new TorporError('conflict', 'The sandbox sleeps, and does not wake for visitors.', {
    sandboxId: id,
    hint: 'It does not wake by itself (autoResume is off): resume it first.',
    details: { dispatched: false, state: 'paused' },
  });
}

/** For questions that must not wake anybody. */
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
    hint: 'Try again in a moment. `torpor logs` shows what the service says.',
    details: { dispatched: false, port, service },
  });
}

/** It was held for as long as a request may be. */
export function heldTooLong(sandboxId: SandboxId, ms: number): TorporError {
  return new TorporError('unreachable', `The sandbox was not ready within ${ms} ms.`, {
    sandboxId,
    retryAfterMs: 2_000,
    hint: 'It is still on its way, and nothing has seen the request: send it again.',
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

/** The sandbox went to sleep or was killed, or the server stops, with the request inside. */
export function cutByPause(sandboxId: SandboxId): TorporError {
  return new TorporError('unreachable', 'The sandbox stopped before it had answered.', {
    sandboxId,
    retryable: false,
    retryAfterMs: 1_000,
    hint: 'The request reached the app, which may have acted on it. Look before you send it again.',
    details: { dispatched: true },
  });
}

/** The program took the request and broke off, or answered with something that is not HTTP. */
export function badAppResponse(sandboxId: SandboxId, port: number, cause: unknown): TorporError {
  return new TorporError('no_answer', `The program on port ${port} did not answer properly.`, {
    sandboxId,
    retryable: false,
    details: { dispatched: true, port },
    cause,
  });
}

/** The same error, with the word that nothing inside has seen the request. */
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
