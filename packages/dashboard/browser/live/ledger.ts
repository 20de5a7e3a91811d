/**
 * The server's events, as they happen. All tabs of a browser share one stream: over HTTP/1.1 a browser opens only six
 * connections to a server, and streams of many tabs would use them up. The tab that holds a lock follows the ledger and
 * passes each event on to the others. When it closes, another tab gets the lock.
 */
import { type EventView, type Torpor, UnauthenticatedError } from '@torpor/sdk';

export interface LedgerReader {
  onEvent(event: EventView): void;
  /** The stream begins, or begins again: earlier events may have been missed. */
  onBegin(): void;
  onBreak(): void;
  /** The session has ended. */
  onRefusal(error: unknown): void;
}

type Notice = { readonly event: EventView } | { readonly begun: true } | { readonly broken: true };

const RETRY_MS = 1_000;

/** Runs until the signal fires. `name` differs for every key, so that no tab gets the events of another. */
export function followLedger(torpor: Torpor, name: string, reader: LedgerReader, signal: AbortSignal): void {
  const lockName = `torpor-ledger ${name}`;
  const channel = new BroadcastChannel(lockName);
  signal.addEventListener('abort', () => channel.close());
  channel.onmessage = ({ data }: MessageEvent<Notice>) => tell(reader, data);
  const lead = () => followAndTell(torpor, reader, (notice) => channel.postMessage(notice), signal);
  // Browsers offer locks only on this machine and over HTTPS; elsewhere every tab has a stream of its own.
  if (navigator.locks === undefined) void lead();
  else {
    void navigator.locks.query().then(({ held = [] }) => {
      // Another tab follows the ledger, and has begun long ago.
      if (held.some((lock) => lock.name === lockName)) reader.onBegin();
    });
    navigator.locks.request(lockName, { signal }, lead).catch(() => {});
  }
}

function tell(reader: LedgerReader, notice: Notice): void {
  if ('event' in notice) reader.onEvent(notice.event);
  else if ('begun' in notice) reader.onBegin();
  else reader.onBreak();
}

async function followAndTell(
  torpor: Torpor,
  reader: LedgerReader,
  pass: (notice: Notice) => void,
  signal: AbortSignal,
): Promise<void> {
  const all = (notice: Notice) => {
    if (signal.aborted) return;
    tell(reader, notice);
    pass(notice);
  };
  while (!signal.aborted) {
    try {
      const { items } = await torpor.eventPage({ order: 'newest', limit: 1, retries: 0, signal });
      all({ begun: true });
      const after = items[0]?.position ?? 0;
      for await (const event of torpor.events({ after, retries: 0, signal })) all({ event });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof UnauthenticatedError) return reader.onRefusal(error);
      all({ broken: true });
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
