/**
 * A process of a sandbox at the other end of a WebSocket: a terminal, or a command whose stdin is a
 * stream. Iterating gives what it says; leaving the loop, or `close`, ends the process.
 */
import {
  type ExecSocketRequest,
  factsOf,
  isErrorCode,
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
import { errorOfAnswer, InvalidRequestError } from './errors.ts';
import type { Query, Transport } from './transport.ts';
import { checked } from './validate.ts';

export interface TerminalOptions {
  readonly cols?: number | undefined;
  readonly rows?: number | undefined;
  /** Absent: a login shell. */
  readonly command?: string | undefined;
  readonly cwd?: string | undefined;
  readonly user?: string | undefined;
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

/** Output that may be on its way before it is read here. */
const WINDOW_BYTES = 1024 * 1024;
const CONFIRM_EVERY_BYTES = 64 * 1024;
/** Input that may wait in this process before its writer has to. */
const MAX_WAITING_BYTES = 1024 * 1024;
const LOOK_AGAIN_MS = 5;
const NORMAL = 1000;

export async function openTerminal(
  transport: Transport,
  id: SandboxId,
  { cols, rows, command, cwd, user }: TerminalOptions,
): Promise<ProcessSocket> {
  return connect(transport, `${pathOf(id)}/terminal`, 'terminal', { cols, rows, command, cwd, user });
}

export async function openExec(
  transport: Transport,
  id: SandboxId,
  request: ExecSocketRequest,
): Promise<ProcessSocket> {
  const socket = await connect(transport, `${pathOf(id)}/exec`, 'exec', {});
  socket.tell({ exec: request });
  return socket;
}

function pathOf(id: SandboxId): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

type Form = 'terminal' | 'exec';

async function connect(transport: Transport, path: string, form: Form, query: Query): Promise<ProcessSocket> {
  const url = transport.address(path, { ...query, window: WINDOW_BYTES });
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const protocols = [SOCKET_PROTOCOL];
  if (transport.apiKey !== undefined) protocols.push(KEY_PROTOCOL_PREFIX + transport.apiKey);
  const socket = new WebSocket(url, protocols);
  socket.binaryType = 'arraybuffer';
  const events = new ProcessSocket(socket, form, (ms) => transport.pace.sleep(ms, undefined));
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve(), { once: true });
    socket.addEventListener('close', () => reject(), { once: true });
  }).catch(() => explain(transport, path, query));
  return events;
}

/** A WebSocket does not say why it was refused; the same request without the upgrade does. */
async function explain(transport: Transport, path: string, query: Query): Promise<never> {
  try {
    await transport.ask({ method: 'GET', path, query, whole: true });
  } catch (thrown) {
    const onlySockets = thrown instanceof InvalidRequestError && thrown.details?.['upgrade'] === 'websocket';
    if (!onlySockets) throw thrown;
  }
  throw new TorporError('unreachable', 'The connection to the sandbox could not be made.');
}

export class ProcessSocket implements AsyncIterable<ProcessEvent> {
  private readonly socket: WebSocket;
  private readonly form: Form;
  private readonly sleep: (ms: number) => Promise<void>;
  private readonly arrived: (ProcessEvent | TorporError)[] = [];
  private wake: () => void = () => {};
  private ended = false;
  private unconfirmed = 0;

  constructor(socket: WebSocket, form: Form, sleep: (ms: number) => Promise<void>) {
    this.socket = socket;
    this.form = form;
    this.sleep = sleep;
    socket.addEventListener('message', ({ data }) => this.accept(data as string | ArrayBuffer));
    socket.addEventListener('error', () => {});
    socket.addEventListener('close', () => {
      this.push(new TorporError('unreachable', 'The connection to the sandbox broke.'));
    });
  }

  /** Resolves when there is room for more. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.socket.send(bytes as Uint8Array<ArrayBuffer>);
    while (this.socket.bufferedAmount > MAX_WAITING_BYTES) await this.sleep(LOOK_AGAIN_MS);
  }

  closeStdin(): void {
    this.tell({ closeStdin: true });
  }

  resize(cols: number, rows: number): void {
    this.tell({ resize: { cols, rows } });
  }

  /** What runs at the other end is ended with the connection. */
  close(): void {
    this.ended = true;
    this.socket.close(NORMAL);
    this.wake();
  }

  tell(request: SocketRequest): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void> {
    try {
      while (!this.ended || this.arrived.length > 0) {
        const next = this.arrived.shift();
        if (next instanceof TorporError) throw next;
        if (next === undefined) await new Promise<void>((resolve) => (this.wake = resolve));
        else {
          yield next;
          if (next.type === 'output') this.confirm(next.bytes.length);
          if (next.type === 'exit') return;
        }
      }
    } finally {
      this.close();
    }
  }

  private confirm(bytes: number): void {
    this.unconfirmed += bytes;
    if (this.unconfirmed < CONFIRM_EVERY_BYTES) return;
    this.tell({ received: this.unconfirmed });
    this.unconfirmed = 0;
  }

  private accept(data: string | ArrayBuffer): void {
    if (typeof data !== 'string') this.push(outputOf(this.form, new Uint8Array(data)));
    else {
      try {
        this.push(eventOf(checked(data, socketNoticeSchema, { status: 101, requestId: null })));
      } catch (thrown) {
        this.push(TorporError.from(thrown));
      }
    }
  }

  private push(event: ProcessEvent | TorporError): void {
    if (this.ended) return;
    this.arrived.push(event);
    this.ended = event instanceof TorporError || event.type === 'exit';
    this.wake();
  }
}

function outputOf(form: Form, bytes: Uint8Array): ProcessEvent {
  if (form === 'terminal') return { type: 'output', channel: 'terminal', bytes };
  const channel = bytes[0] === OUTPUT_CHANNELS.stderr ? 'stderr' : 'stdout';
  return { type: 'output', channel, bytes: bytes.subarray(1) };
}

function eventOf(notice: SocketNotice): ProcessEvent | TorporError {
  if ('started' in notice) return { type: 'started', ...notice.started };
  if ('exit' in notice) return { type: 'exit', ...notice.exit };
  const { code } = notice.error;
  return errorOfAnswer(isErrorCode(code) ? factsOf(code).http : 500, null, notice);
}
