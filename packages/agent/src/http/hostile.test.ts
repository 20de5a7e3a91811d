import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import { Code, type ConnectError } from '@connectrpc/connect';
import { Signal, StartRequestSchema } from '@torpor/envd';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

let agent: RunningAgent;

beforeAll(async () => {
  agent = await runAgent();
});

// After every test the agent still serves, and has logged no uncaught error.
afterEach(async () => {
  await agent.client.health();
  const said = await transcribe(agent.client.process.start({ process: shell('echo alive') }));
  expect(said.stdout).toBe('alive\n');
  expect(agent.log()).not.toContain('uncaught error');
});

afterAll(() => agent.stop());

const residentBytes = async () => {
  const status = await readFile(`/proc/${agent.pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
};

/** Sends raw bytes and returns everything that is received. */
async function raw(bytes: string | Uint8Array): Promise<string> {
  const { hostname, port } = new URL(agent.baseUrl);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  // Not half-closed: the agent would take that for a client that left.
  socket.write(bytes);
  return text(socket).catch(() => '');
}

function frame(flags: number, length: number, data: string | Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, Buffer.from(data)]);
}

async function stream(body: Uint8Array, headers: Record<string, string> = {}) {
  const response = await fetch(`${agent.baseUrl}/process.Process/Start`, {
    method: 'POST',
    headers: { 'content-type': 'application/connect+json', ...headers },
    body: new Uint8Array(body),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  // The last frame has the result.
  const json = bytes.subarray(bytes.lastIndexOf('{"error"')).toString();
  return JSON.parse(json) as { error: { code: string } };
}

describe('a flood of output', () => {
  const FLOOD = 300_000_000;

  it('without a reader is drained and does not fill the memory', async () => {
    const before = await residentBytes();
    const command = `read; head -c ${FLOOD} /dev/zero; printf END`;
    const started = await transcribe(
      agent.client.process.start({ process: shell(command), stdin: true }),
      ({ pid }) => pid > 0,
    );
    const process = { selector: { case: 'pid' as const, value: started.pid } };
    await agent.client.process.closeStdin({ process });
    await expect
      .poll(async () => (await agent.client.process.list({})).processes, { timeout: 25_000 })
      .toEqual([]);
    const late = await transcribe(agent.client.process.connect({ process }));
    expect(late.stdout.endsWith('END')).toBe(true);
    expect(late.droppedBytes).toBeGreaterThan(FLOOD - 2 * 1024 * 1024);
    expect((await residentBytes()) - before).toBeLessThan(150_000_000);
  });

  /** A client that starts the process and then does not read. */
  async function stalledClient() {
    const { hostname, port } = new URL(agent.baseUrl);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.pause();
    const process = { cmd: 'head', args: ['-c', String(FLOOD), '/dev/zero'] };
    const message = toBinary(StartRequestSchema, create(StartRequestSchema, { process, tag: 'flood' }));
    const body = frame(0, message.length, message);
    const head = [
      'POST /process.Process/Start HTTP/1.1',
      'host: a',
      'content-type: application/connect+proto',
    ];
    socket.write(`${[...head, 'connection: close', `content-length: ${body.length}`].join('\r\n')}\r\n\r\n`);
    socket.write(body);
    const selector = { selector: { case: 'tag' as const, value: 'flood' } };
    const find = async () =>
      (await agent.client.process.list({})).processes.find(({ tag }) => tag === 'flood');
    await expect.poll(find, { timeout: 20_000 }).toBeDefined();
    const pid = (await find())?.pid;
    let last = 0;
    const isHeld = async () => {
      const io = await readFile(`/proc/${pid}/io`, 'utf8');
      const written = Number(/^wchar: (\d+)/m.exec(io)?.[1]);
      const isSame = written > 0 && written === last;
      last = written;
      return isSame;
    };
    await expect.poll(isHeld, { timeout: 20_000, interval: 200 }).toBe(true);
    expect(last).toBeLessThan(FLOOD / 10);
    return { socket, selector };
  }

  it('with a slow reader blocks the process, and arrives complete', async () => {
    const before = await residentBytes();
    const { socket } = await stalledClient();
    expect((await residentBytes()) - before).toBeLessThan(150_000_000);
    let received = 0;
    socket.on('data', (chunk) => {
      received += chunk.length;
    });
    socket.resume();
    await new Promise((resolve) => socket.once('close', resolve));
    expect(received).toBeGreaterThan(FLOOD);
    expect((await residentBytes()) - before).toBeLessThan(150_000_000);
  });

  it('continues when the client that blocked it vanishes', async () => {
    const { socket, selector } = await stalledClient();
    socket.resetAndDestroy();
    await expect
      .poll(async () => (await agent.client.process.list({})).processes, { timeout: 25_000 })
      .toEqual([]);
    const late = await transcribe(agent.client.process.connect({ process: selector }));
    expect(late.end?.exitCode).toBe(0);
    expect(late.droppedBytes).toBeGreaterThan(FLOOD - 2 * 1024 * 1024);
  });
});

describe('input that the process does not read', () => {
  it('is refused beyond a limit', async () => {
    const started = await transcribe(
      agent.client.process.start({ process: shell('echo up; sleep 300'), stdin: true }),
      ({ stdout }) => stdout !== '',
    );
    const process = { selector: { case: 'pid' as const, value: started.pid } };
    const input = { input: { case: 'stdin' as const, value: Buffer.alloc(3_000_000) } };
    const sends = Array.from({ length: 8 }, () =>
      agent.client.process.sendInput({ process, input }).catch((thrown: ConnectError) => thrown.code),
    );
    expect(await Promise.race(sends)).toBe(Code.ResourceExhausted);
    await agent.client.process.sendSignal({ process, signal: Signal.SIGKILL });
    await Promise.all(sends);
  });
});

describe('malformed messages', () => {
  it.each([
    ['no message at all', Buffer.alloc(0), 'unimplemented|invalid_argument'],
    ['half a head', Buffer.from([0, 0]), 'invalid_argument'],
    ['less than was promised', frame(0, 100, '{}'), 'invalid_argument'],
    ['more than is allowed', frame(0, 5 * 1024 * 1024, '{}'), 'resource_exhausted|invalid_argument'],
    ['no JSON', frame(0, 3, 'abc'), 'invalid_argument'],
    ['the wrong JSON', frame(0, 13, '{"process":7}'), 'invalid_argument'],
    [
      'two messages for one',
      Buffer.concat([frame(0, 2, '{}'), frame(0, 2, '{}')]),
      'unimplemented|invalid_argument',
    ],
    ['compression that was not announced', frame(1, 2, '{}'), 'internal|invalid_argument'],
  ])('%s', async (_, body, code) => {
    expect((await stream(body)).error.code).toMatch(new RegExp(`^(${code})$`));
  });

  it('a small compressed message that expands into a huge one', async () => {
    const bomb = gzipSync(Buffer.alloc(100_000_000, 0x20));
    const before = await residentBytes();
    const answer = await stream(frame(1, bomb.length, bomb), { 'connect-content-encoding': 'gzip' });
    expect(answer.error.code).toBe('resource_exhausted');
    expect((await residentBytes()) - before).toBeLessThan(80_000_000);
  });

  it('a unary message beyond the limit', async () => {
    const response = await fetch(`${agent.baseUrl}/process.Process/List`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `{"pad":"${'x'.repeat(5 * 1024 * 1024)}"}`,
    });
    expect(((await response.json()) as { code: string }).code).toBe('resource_exhausted');
  });

  it('a timeout that is not a number', async () => {
    const answer = await stream(frame(0, 2, '{}'), { 'connect-timeout-ms': 'soon' });
    expect(answer.error.code).toBe('invalid_argument');
  });

  it.each(['/init', '/process.Process/List', '/filesystem.Filesystem/Stat', '/files/compose'])(
    'too much for %s, and the connection can still be used',
    async (path) => {
      const call = { method: 'POST', headers: { 'content-type': 'application/json' } };
      for (let round = 0; round < 5; round += 1) {
        const tooMuch = await fetch(agent.baseUrl + path, { ...call, body: 'x'.repeat(6 * 1024 * 1024) });
        expect(tooMuch.ok).toBe(false);
        await tooMuch.text();
        expect((await fetch(`${agent.baseUrl}/health`)).status).toBe(204);
      }
    },
  );

  it('an endless body for small calls', async () => {
    const response = await fetch(`${agent.baseUrl}/init`, { method: 'POST', body: 'x'.repeat(3_000_000) });
    expect(response.status).toBe(400);
  });
});

describe('malformed HTTP requests', () => {
  const call = (path: string, host: string | undefined, body: string, version = '1.1') =>
    [
      `POST ${path} HTTP/${version}`,
      ...(host === undefined ? [] : [`host: ${host}`]),
      'content-type: application/json',
      `content-length: ${body.length}`,
      'connection: close',
      '',
      body,
    ].join('\r\n');

  it.each([
    ['with a space in it', call('/process.Process/List', 'a b', '{}')],
    ['that is half an address', call('/process.Process/List', '[::', '{}')],
    ['that is missing', call('/process.Process/List', undefined, '{}', '1.0')],
    ['that is missing, for files', call('/filesystem.Filesystem/Stat', undefined, '{"path":"/"}', '1.0')],
  ])('are served when only the Host header is malformed: one %s', async (_, request) => {
    expect(await raw(request)).toMatch(/^HTTP\/1\.1 200 /);
  });

  it.each([
    ['nonsense', 'nonsense\r\n\r\n'],
    [
      'a query that cannot be decoded',
      'GET /files?path=%ff%zz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n',
    ],
    ['a path of slashes', 'GET // HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n'],
    ['half a URL', 'GET http://[bad/files HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n'],
    [
      'two lengths',
      'POST /files?path=/x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
  ])('are refused for %s', async (_, request) => {
    expect(await raw(request)).toMatch(/^HTTP\/1\.1 4\d\d /);
  });

  it('are refused when the Authorization header is not encoded', async () => {
    const response = await fetch(`${agent.baseUrl}/process.Process/Start`, {
      method: 'POST',
      headers: { 'content-type': 'application/connect+json', authorization: 'Basic %%%' },
      body: new Uint8Array(frame(0, 29, '{"process":{"cmd":"/bin/id"}}')),
    });
    expect(await response.text()).toContain('unauthenticated');
  });
});
