/** A proxy in front of an S3 server that makes it hang, refuse, break off or lie. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * - `hang`: takes the request and never answers;
 * - `drip`: sends the body of an answer byte by byte;
 * - `forbid`, `fail`, `forget`, `no-bucket`, `skew`: answers 403, 500, 404 or with these errors of S3;
 * - `cut`: ends the connection in the middle of the body;
 * - `truncate`: takes half of the bytes of an object away, with headers that agree;
 * - `change`: changes one byte in the middle of the body.
 */
export type ProxyFault =
  | 'none'
  | 'hang'
  | 'drip'
  | 'forbid'
  | 'fail'
  | 'forget'
  | 'no-bucket'
  | 'skew'
  | 'cut'
  | 'truncate'
  | 'change';

const ANSWERS: Partial<Record<ProxyFault, readonly [number, string]>> = {
  forbid: [403, 'AccessDenied'],
  fail: [500, 'InternalError'],
  forget: [404, 'NoSuchKey'],
  'no-bucket': [404, 'NoSuchBucket'],
  skew: [403, 'RequestTimeTooSkewed'],
};

export class FaultProxy {
  fault: ProxyFault = 'none';
  /** Only requests with one of these methods are faulty. Empty: all. */
  methods: readonly string[] = [];
  /** The requests that came, as `GET /bucket/key`. */
  readonly requests: string[] = [];
  readonly #target: number;
  readonly #server = createServer((incoming, answer) => this.#handle(incoming, answer));

  private constructor(target: number) {
    this.#target = target;
  }

  static async open(targetPort: number): Promise<FaultProxy> {
    const proxy = new FaultProxy(targetPort);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #handle(incoming: IncomingMessage, answer: ServerResponse): void {
    const { method = 'GET', url = '/' } = incoming;
    this.requests.push(`${method} ${url}`);
    const fault = this.methods.length === 0 || this.methods.includes(method) ? this.fault : 'none';
    if (fault === 'hang') {
      incoming.resume();
      return;
    }
    const canned = ANSWERS[fault];
    if (canned !== undefined) {
      incoming.resume();
      incoming.on('end', () => sendError(answer, method, canned));
      return;
    }
    // The signature covers the Host header, so it is passed on as it is.
    const outgoing = request(
      { host: '127.0.0.1', port: this.#target, method, path: url, headers: incoming.headers },
      (response) => void relay(response, answer, fault),
    );
    outgoing.on('error', () => answer.destroy());
    incoming.pipe(outgoing);
  }
}

function sendError(answer: ServerResponse, method: string, [status, code]: readonly [number, string]): void {
  const body = `<?xml version="1.0"?><Error><Code>${code}</Code><Message>by the proxy</Message></Error>`;
  answer.writeHead(status, { 'content-type': 'application/xml', 'content-length': Buffer.byteLength(body) });
  answer.end(method === 'HEAD' ? undefined : body);
}

async function relay(response: IncomingMessage, answer: ServerResponse, fault: ProxyFault): Promise<void> {
  const body = Buffer.concat(await Array.fromAsync(response as AsyncIterable<Buffer>));
  const half = Math.floor(body.length / 2);
  const headers = { ...response.headers };
  if (fault === 'truncate') headers['content-length'] = String(half);
  answer.writeHead(response.statusCode ?? 502, headers);
  if (fault === 'change') body.writeUInt8(body.readUInt8(half) ^ 1, half);
  if (fault === 'cut') answer.write(body.subarray(0, half), () => answer.destroy());
  else if (fault === 'drip') drip(body, answer);
  else answer.end(fault === 'truncate' ? body.subarray(0, half) : body);
}

function drip(body: Buffer, answer: ServerResponse): void {
  let at = 0;
  const timer = setInterval(() => {
    if (at >= body.length || answer.destroyed) clearInterval(timer);
    else answer.write(body.subarray(at, ++at));
  }, 20);
}
