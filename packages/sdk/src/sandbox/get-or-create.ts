/**
 * The sandbox of a name, created if there is none. A name belongs to one sandbox at a time, and the server's conflict
 * error has its id, so that concurrent callers get the same sandbox.
 */
import type { CreateRequest, SandboxId, SandboxState, SandboxView } from '@torpor/protocol';
import type { Torpor } from '../client.ts';
import { ConflictError, NotFoundError } from '../errors.ts';
import type { CallOptions, ReadOptions } from '../json-calls.ts';
import { hasEnded, waitFor } from './wait-for.ts';

/** Bounds the retries when the sandbox of the name ends again and again. */
const MAX_ROUNDS = 10;

export async function getOrCreate(
  torpor: Torpor,
  name: string,
  request: Omit<CreateRequest, 'name'>,
  { signal }: CallOptions,
): Promise<SandboxView> {
  for (let round = 1; ; round++) {
    try {
      return await torpor.sandboxes.create({ ...request, name }, { signal });
    } catch (thrown) {
      const owner = thrown instanceof ConflictError ? thrown.sandboxId : undefined;
      if (owner === undefined || round === MAX_ROUNDS) throw thrown;
      const found = await settled(torpor, owner as SandboxId, { signal });
      if (found !== undefined) return found;
    }
  }
}

const SETTLED: readonly SandboxState[] = [
  'running',
  'pausing',
  'paused',
  'resuming',
  'killed',
  'failed',
  'lost',
];

/** The sandbox once it is created, or undefined when it has ended and its name is free again. */
async function settled(
  torpor: Torpor,
  id: SandboxId,
  options: ReadOptions,
): Promise<SandboxView | undefined> {
  try {
    const sandbox = await waitFor(torpor, id, SETTLED, options);
    return hasEnded(sandbox.state) || sandbox.state === 'killing' ? undefined : sandbox;
  } catch (thrown) {
    if (thrown instanceof NotFoundError) return undefined;
    throw thrown;
  }
}
