/** Waits until a sandbox reaches a state. It follows the ledger, which contains every state, also short ones. */
import type { ErrorCode, SandboxId, SandboxState, SandboxView } from '@torpor/protocol';
import type { Torpor } from '../client.ts';
import { errorInside } from '../errors.ts';
import type { ReadOptions } from '../json-calls.ts';

/** The final states, with the error code for a caller that waits for another state. */
const ENDS: Readonly<Partial<Record<SandboxState, ErrorCode>>> = {
  killed: 'killed',
  lost: 'lost',
  failed: 'conflict',
};

export function hasEnded(state: SandboxState): boolean {
  return ENDS[state] !== undefined;
}

/** Resolves when the sandbox is, or just was, in one of the states. The returned view may already show the next state. */
export async function waitFor(
  torpor: Torpor,
  id: SandboxId,
  wanted: readonly SandboxState[],
  options: ReadOptions,
): Promise<SandboxView> {
  const sandbox = await torpor.sandboxes.get(id, options);
  if (isThere(id, sandbox.state, wanted)) return sandbox;
  const last = await lastEvent(torpor, id, options);
  if (!isThere(id, last.state, wanted)) {
    for await (const { state } of torpor.sandboxes.events(id, { ...options, after: last.seq })) {
      if (isThere(id, state, wanted)) break;
    }
  }
  return torpor.sandboxes.get(id, options);
}

/** Throws when the sandbox is in another final state. */
function isThere(id: SandboxId, state: SandboxState, wanted: readonly SandboxState[]): boolean {
  if (wanted.includes(state)) return true;
  const code = ENDS[state];
  if (code === undefined) return false;
  const message = `Sandbox ${id} is ${state}; it will not be ${wanted.join(' or ')} any more.`;
  throw errorInside(null, { error: { code, message, sandboxId: id } });
}

/** The last event of the ledger now. Its state is the sandbox's, and later events are new. */
async function lastEvent(torpor: Torpor, sandboxId: SandboxId, options: ReadOptions) {
  let last = { seq: 0, state: 'creating' as SandboxState };
  let cursor: string | undefined;
  do {
    const page = await torpor.eventPage({ ...options, sandboxId, limit: 1_000, cursor });
    last = page.items.at(-1) ?? last;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return last;
}
