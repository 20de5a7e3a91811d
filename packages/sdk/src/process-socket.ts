/**
 * A process in a sandbox, connected by a WebSocket: a terminal, or a command whose stdin is a stream. Iterating gives its
 * output; leaving the loop, or `close`, ends the process.
 */
import {
  type ExecSocketRequest,
  KEY_PROTOCOL_PREFIX,
  OUTPUT_CHANNELS,
  type OutputChannel,
  type SandboxId,
  SOCKET_PROTOCOL,
  type SocketNotice,
  type SocketRequest,
  socketNoticeSchema,
  TorporError,
} from '@torpor/protocol';
import { errorInside, InvalidRequestError } from './errors.ts';
import { plainSocketOptions } from './plain-fetch.ts';
import type { Query, Transport } from './transport.ts';
import { checked } from './validate.ts';
import type { StandardSocket } from './web-socket.ts';

export interface SocketOptions {
  /** Closes the connection and ends the process. */
  readonly signal?: AbortSignal | undefined;
}

export interface TerminalOptions extends SocketOptions {
  readonly cols?: number | undefined;
  readonly rows?: number | undefined;
  /** Default: a login shell. */
  readonly command?: string | undefined;
  readonly cwd?: string | undefined;
  readonly user?: string | undefined;
  /** false: a paused sandbox is not woken, and the call is a `ConflictError`. */
  readonly wake?: boolean | undefined;
}

export type ProcessEvent =
  | { readonly type: 'started'; readonly pid: number; readonly autoResumed: boolean }
  | { readonly type: 'output'; readonly channel: OutputChannel | 'terminal'; readonly bytes: Uint8Array }
  | {
      readonly type: 'exit';
      readonly code: number;
      readonly signal: string | null;
      readonly durationMs: number;
    };

/** How much unread output the server may send ahead. */
const WINDOW_BYTES = 1024 * 1024;
const CONFIRM_EVERY_BYTES = 64 * 1024;
/** How much unsent input may be buffered here before `write` waits. */
const MAX_BUFFERED_BYTES = 1024 * 1024;
const BUFFER_POLL_MS = 5;
const NORMAL_CLOSURE = 1000;
/** `WebSocket.OPEN`; there may be no global WebSocket to take it from. */
const OPEN = 1;

export async function openTerminal(
  transport: Transport,
  id: SandboxId,
  { cols, rows, command, cwd, user, wake, signal }: TerminalOptions,
): Promise<ProcessSocket> {
  const query = { cols, rows, command, cwd, user, wake };
  return connect(transport, `${pathOf(id)}/terminal`, 'terminal', query, signal);
}

export async function openExec(
  transport: Transport,
  id: SandboxId,
  request: ExecSocketRequest,
  { signal }: SocketOptions,
): Promise<ProcessSocket> {
  const socket = await connect(transport, `${pathOf(id)}/exec`, 'exec', {}, signal);
  socket.tell({ exec: request });
  return socket;
}

function pathOf(id: SandboxId): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

type Form = 'terminal' | 'exec';

async function connect(
  transport: Transport,
  path: string,
  form: Form,
  query: Query,
  signal: AbortSignal | undefined,
): Promise<ProcessSocket> {
  signal?.throwIfAborted();
  const url = transport.address(path, { ...query, window: WINDOW_BYTES });
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const protocols = [SOCKET_PROTOCOL];
  if (transport.apiKey !== undefined) protocols.push(KEY_PROTOCOL_PREFIX + transport.apiKey);
  const socket = open(transport, url, protocols);
  const events = new ProcessSocket(socket, form, (ms) => transport.pace.sleep(ms, signal), signal);
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve(), { once: true });
    socket.addEventListener('close', () => reject(), { once: true });
    // Node 22 reports a refused handshake only by this event.
    socket.addEventListener('error', () => reject(), { once: true });
  }).catch(() => {
    signal?.throwIfAborted();
    return explain(transport, path, query, signal);
  });
  return events;
}

function open({ webSocket: Socket }: Transport, url: URL, protocols: string[]): StandardSocket {
  if (Socket === undefined) {
    throw new TorporError('capability_unsupported', 'This environment has no WebSocket.', {
      hint: 'Browsers and Node 22 have one. Elsewhere pass a class in the client\'s option "webSocket".',
    });
  }
  const socket = new Socket(url, Socket === globalThis.WebSocket ? plainSocketOptions(protocols) : protocols);
  socket.binaryType = 'arraybuffer';
  return socket;
}

/** Throws why the WebSocket was refused. The WebSocket API hides the reason; the same request as a GET has it. */
async function explain(
  transport: Transport,
  path: string,
  query: Query,
  signal: AbortSignal | undefined,
): Promise<never> {
  try {
    await transport.ask({ method: 'GET', path, query, whole: true, signal });
  } catch (thrown) {
    const onlySockets = thrown instanceof InvalidRequestError && thrown.details?.['upgrade'] === 'websocket';
    if (!onlySockets) throw thrown;
  }
  throw new TorporError('unreachable', 'The connection to the sandbox could not be opened.');
}

/** The error that ends the iteration. */
class Failure {
  readonly thrown: unknown;

  constructor(thrown: unknown) {
    this.thrown = thrown;
  }
}

export class ProcessSocket implements AsyncIterable<ProcessEvent> {
  readonly #socket: StandardSocket;
  readonly #form: Form;
  readonly #sleep: (ms: number) => Promise<void>;
  readonly #arrived: (ProcessEvent | Failure)[] = [];
  #wake: () => void = () => {};
  #ended = false;
  #unconfirmed = 0;

  constructor(
    socket: StandardSocket,
    form: Form,
    sleep: (ms: number) => Promise<void>,
    signal: AbortSignal | undefined,
  ) {
    this.#socket = socket;
    this.#form = form;
    this.#sleep = sleep;
    const giveUp = () => {
      this.#push(new Failure(signal?.reason));
      socket.close(NORMAL_CLOSURE);
    };
    signal?.addEventListener('abort', giveUp, { once: true });
    socket.addEventListener('message', (event) =>
      this.#accept((event as { data: string | ArrayBuffer }).data),
    );
    socket.addEventListener('error', () => {});
    socket.addEventListener('close', () => {
      signal?.removeEventListener('abort', giveUp);
      this.#push(new Failure(new TorporError('unreachable', 'The connection to the sandbox broke.')));
    });
  }

  /** Resolves when there is room for more input. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#socket.readyState !== OPEN) return;
    this.#socket.send(bytes as unknown as ArrayBuffer);
    while (this.#socket.bufferedAmount > MAX_BUFFERED_BYTES) await this.#sleep(BUFFER_POLL_MS);
  }

  closeStdin(): void {
    this.tell({ closeStdin: true });
  }

  resize(cols: number, rows: number): void {
    this.tell({ resize: { cols, rows } });
  }

  /** Closes the connection and ends the process. */
  close(): void {
    this.#ended = true;
    this.#socket.close(NORMAL_CLOSURE);
    this.#wake();
  }

  tell(request: SocketRequest): void {
    if (this.#socket.readyState === OPEN) this.#socket.send(JSON.stringify(request));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void> {
    try {
      while (!this.#ended || this.#arrived.length > 0) {
        const next = this.#arrived.shift();
        if (next instanceof Failure) throw next.thrown;
        if (next === undefined) await new Promise<void>((resolve) => (this.#wake = resolve));
        else {
          yield next;
          if (next.type === 'output') this.#confirm(next.bytes.length);
          if (next.type === 'exit') return;
        }
      }
    } finally {
      this.close();
    }
  }

  #confirm(bytes: number): void {
    this.#unconfirmed += bytes;
    if (this.#unconfirmed < CONFIRM_EVERY_BYTES) return;
    this.tell({ received: this.#unconfirmed });
    this.#unconfirmed = 0;
  }

  #accept(data: string | ArrayBuffer): void {
    if (typeof data !== 'string') this.#push(outputOf(this.#form, new Uint8Array(data)));
    else {
      try {
        this.#push(eventOf(checked(data, socketNoticeSchema, { status: 101, requestId: null })));
      } catch (thrown) {
        this.#push(new Failure(thrown));
      }
    }
  }

  #push(event: ProcessEvent | Failure): void {
    if (this.#ended) return;
    this.#arrived.push(event);
    this.#ended = event instanceof Failure || event.type === 'exit';
    this.#wake();
  }
}

function outputOf(form: Form, bytes: Uint8Array): ProcessEvent {
  if (form === 'terminal') return { type: 'output', channel: 'terminal', bytes };
  const channel = bytes[0] === OUTPUT_CHANNELS.stderr ? 'stderr' : 'stdout';
  return { type: 'output', channel, bytes: bytes.subarray(1) };
}

function eventOf(notice: SocketNotice): ProcessEvent | Failure {
  if ('started' in notice) return { type: 'started', ...notice.started };
  if ('exit' in notice) return { type: 'exit', ...notice.exit };
  return new Failure(errorInside(null, notice));
}
