/** The error for a request that the sandbox's state does not allow. For a lost sandbox it names the lost checkpoint. */
import { type ErrorDetails, lostDetails, TorporError } from '@torpor/protocol';
import { refusal } from './lifecycle.ts';
import type { Sandbox } from './sandbox.ts';

export function refusedBy(sandbox: Sandbox, message: string): TorporError {
  return new TorporError(refusal(sandbox.state), message, { sandboxId: sandbox.id, ...about(sandbox) });
}

function about(sandbox: Sandbox): ErrorDetails {
  if (sandbox.state === 'lost') return lostDetails(sandbox);
  const { state, reason } = sandbox;
  return { details: { state, ...(reason === null ? {} : { reason }) } };
}
