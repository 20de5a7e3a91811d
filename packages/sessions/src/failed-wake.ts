/**
 * The error that users see when a session has no sandbox. The platform's own code and message are always passed on (R106).
 * That the agent runtime could not be started is said once for each cause, and only when no new sandbox could be created
 * (R79).
 */
import { type ErrorBody, TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import { lockSession, type Session, setError } from './session.ts';
import { isSameCause, recordFailure } from './wake.ts';

const NOT_STARTED = 'Failed to start the agent runtime.';

export interface WakeFailure {
  readonly error: TorporError;
  /** `spawn`: no new sandbox could be created. `request`: the caller's request cannot be met, and nothing has changed. */
  readonly at: 'wake' | 'spawn' | 'request';
}

/** Records the failure with the session, and returns the error for the caller. */
export async function recordWakeFailure(
  { db, clock, settings }: Context,
  id: Session['id'],
  { error, at }: WakeFailure,
): Promise<TorporError> {
  if (at === 'request') return error;
  const isNewCause = await db.transaction(async (tx) => {
    const session = await lockSession(tx, id);
    if (session === undefined || session.endedAt !== null) return false;
    await setError(tx, id, error.toBody());
    const failed = { at: clock.now(), sandboxId: session.sandboxId, error };
    return recordFailure(tx, id, failed, settings.wakesKept);
  });
  return at === 'spawn' && isNewCause ? withAnnouncement(error) : error;
}

function withAnnouncement(error: TorporError): TorporError {
  const { code, message, ...extra } = error.toBody();
  return new TorporError(code, `${NOT_STARTED} ${message}`, { ...extra, cause: error });
}

/** The error that a waiting turn shows. An announcement stays as long as its cause does. */
export function errorOfWaitingTurn(shown: ErrorBody | null, error: TorporError): ErrorBody {
  if (shown?.message.startsWith(`${NOT_STARTED} `) !== true) return error.toBody();
  const earlier = TorporError.fromBody({ ...shown, message: shown.message.slice(NOT_STARTED.length + 1) });
  return isSameCause(earlier, error) ? shown : error.toBody();
}
