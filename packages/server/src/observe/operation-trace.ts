/**
 * Which operation a request set in motion, learnt from the ids that were made while it was served. An id that
 * was made need not have been used, so whoever wants to name one asks the engine first.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Engine, Ids } from '@torpor/engine';
import type { Id, IdKind, OperationId } from '@torpor/protocol';

export class OperationTrace implements Ids {
  private readonly ids: Ids;
  private readonly made = new AsyncLocalStorage<OperationId[]>();

  constructor(ids: Ids) {
    this.ids = ids;
  }

  next<K extends IdKind>(kind: K): Id<K> {
    const id = this.ids.next(kind);
    if (kind === 'op') this.made.getStore()?.push(id as OperationId);
    return id;
  }

  /** Runs `work` and puts every operation id that is made for it into `made`. */
  watch<T>(made: OperationId[], work: () => Promise<T>): Promise<T> {
    return this.made.run(made, work);
  }
}

/** The first of them that came to be: a fork is made before its children's creates. */
export async function operationOf(
  engine: Engine,
  org: string,
  made: readonly OperationId[],
): Promise<OperationId | undefined> {
  for (const id of made) {
    const found = await engine.operation(org, id).catch(() => undefined);
    if (found !== undefined) return found.id;
  }
  return undefined;
}
