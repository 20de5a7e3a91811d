/** Progress notifications for a client that asked for them. */
import type { ServerContext } from '@modelcontextprotocol/server';
import type { EventView, SandboxId, Torpor } from '@torpor/sdk';

export class Progress {
  readonly #request: ServerContext['mcpReq'];
  #sent: Promise<void> = Promise.resolve();
  #count = 0;

  constructor({ mcpReq }: ServerContext) {
    this.#request = mcpReq;
  }

  get wanted(): boolean {
    return this.#request._meta?.progressToken !== undefined;
  }

  /** In the order of the calls. A notification that cannot be sent loses progress, and nothing else. */
  tell(message: string): void {
    const progressToken = this.#request._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress: ++this.#count, message };
    this.#sent = this.#sent
      .then(() => this.#request.notify({ method: 'notifications/progress', params }))
      .catch(() => {});
  }

  /** Resolves when all notifications are sent. A client ignores those that come after the result. */
  settled(): Promise<void> {
    return this.#sent;
  }
}

/** Tells the events of a sandbox that happen while `work` runs: `pause: frozen`, `sandbox.paused`. */
export async function tellingEvents<T>(
  torpor: Torpor,
  sandboxId: SandboxId,
  progress: Progress,
  work: () => Promise<T>,
): Promise<T> {
  if (!progress.wanted) return work();
  const { items } = await torpor.eventPage({ sandboxId, limit: 1, order: 'newest' });
  let told = items[0]?.seq ?? 0;
  const tell = (event: EventView) => {
    told = event.seq;
    progress.tell(textOf(event));
  };
  const done = new AbortController();
  const follow = async () => {
    for await (const event of torpor.sandboxes.events(sandboxId, { after: told, signal: done.signal }))
      tell(event);
  };
  const followed = follow().catch(() => {});
  try {
    const result = await work();
    done.abort();
    await followed;
    // What the stream has not brought yet.
    const rest = await torpor.eventPage({ sandboxId, cursor: String(told) });
    for (const event of rest.items) tell(event);
    return result;
  } finally {
    done.abort();
  }
}

function textOf({ type, data }: EventView): string {
  return type === 'operation.phase' ? `${String(data['kind'])}: ${String(data['phase'])}` : type;
}
