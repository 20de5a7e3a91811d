/**
 * A server that follows a script, one step per request: it responds with a status, or breaks the connection at a certain
 * point. It records the requests.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

export type Step =
  | number
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string }
  | 'close'
  | 'reset'
  | 'half headers'
  | 'reset in headers'
  | 'truncated'
  | 'truncated chunks'
  | 'reset in body'
  | 'stalled';

/** Every step that breaks the connection immediately. */
export const BROKEN: readonly Step[] = [
  'close',
  'reset',
  'half headers',
  'reset in headers',
  'truncated',
  'truncated chunks',
  'reset in body',
];

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface FaultServer {
  readonly url: string;
  readonly asked: Asked[];
  /** Sets the steps for the next requests; the last step is repeated. */
  play(...steps: Step[]): void;
  close(): Promise<void>;
}

export async function faultServer(): Promise<FaultServer> {
  const asked: Asked[] = [];
  const open = new Set<Socket>();
  let script: Step[] = [200];
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket)).on('error', () => {});
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      const request = parse(text);
      if (request === undefined) return;
      text = '';
      asked.push(request);
      const step = script.length > 1 ? script.shift() : script[0];
      perform(socket, step ?? 200, request.method === 'HEAD');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    play: (...steps) => {
      script = steps;
      asked.length = 0;
    },
    close: async () => {
      for (const socket of open) socket.destroy();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A complete request, or undefined while a part of it is missing. */
function parse(text: string): Asked | undefined {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [line = '', ...fields] = text.slice(0, end).split('\r\n');
  const headers = Object.fromEntries(
    fields.map((field) => [
      field.slice(0, field.indexOf(':')).toLowerCase(),
      field.slice(field.indexOf(':') + 1).trim(),
    ]),
  );
  const body = text.slice(end + 4);
  if (body.length < Number(headers['content-length'] ?? 0)) return undefined;
  if (headers['transfer-encoding'] === 'chunked' && !body.endsWith('0\r\n\r\n')) return undefined;
  const [method = '', path = ''] = line.split(' ');
  return { method, path, headers, body };
}

function perform(socket: Socket, step: Step, headOnly: boolean): void {
  const reset = () => socket.resetAndDestroy();
  if (step === 'close') socket.end();
  else if (step === 'reset') reset();
  else if (step === 'half headers') socket.end('HTTP/1.1 200 OK\r\ncontent-');
  else if (step === 'reset in headers')
    socket.write('HTTP/1.1 200 OK\r\ncontent-', () => setImmediate(reset));
  else if (step === 'truncated') socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":');
  else if (step === 'stalled') socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":');
  else if (step === 'truncated chunks') {
    socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{"half":\r\n');
  } else if (step === 'reset in body') {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":', () => setTimeout(reset, 5));
  } else answer(socket, typeof step === 'number' ? { status: step } : step, headOnly);
}

function answer(socket: Socket, step: Exclude<Step, string | number>, headOnly: boolean): void {
  const body = step.body ?? '{}';
  const bodiless = step.status < 200 || step.status === 204 || step.status === 304;
  const lines = Object.entries({
    ...(bodiless
      ? {}
      : { 'content-length': String(Buffer.byteLength(body)), 'content-type': 'application/json' }),
    ...step.headers,
  }).map(([name, value]) => `${name}: ${value}`);
  const head = [`HTTP/1.1 ${step.status} Some`, ...lines, '', ''].join('\r\n');
  // A final response must follow an informational one.
  if (step.status < 200) socket.write(`${head}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n`);
  else socket.write(head + (bodiless || headOnly ? '' : body));
}
