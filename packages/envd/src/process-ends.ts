/** The end of a process on the wire. The call is not part of E2B's protocol, so it is plain JSON. */
import { TorporError } from '@torpor/protocol';
import type { ProcessEvent_EndEvent } from './gen/process/process_pb.js';

export interface EndedProcess {
  readonly tag: string;
  /** Null when the agent knows of no process with this tag. */
  readonly end: Pick<ProcessEvent_EndEvent, 'exited' | 'exitCode' | 'status'> | null;
}

/** Checks the answer: an agent runs beside untrusted code. */
export function endedProcess(answer: unknown): EndedProcess {
  const { tag, end } = (answer ?? {}) as Record<string, unknown>;
  if (typeof tag === 'string' && end === undefined) return { tag, end: null };
  const { exited, exitCode, status } = (end ?? {}) as Record<string, unknown>;
  const isEnd = typeof exited === 'boolean' && Number.isSafeInteger(exitCode) && typeof status === 'string';
  if (typeof tag !== 'string' || !isEnd)
    throw new TorporError('internal', 'The agent did not say how a process ended.');
  return { tag, end: { exited, exitCode: Number(exitCode), status: status.slice(0, 200) } };
}
