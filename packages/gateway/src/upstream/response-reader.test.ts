import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BadResponse } from './response-head.ts';
import { ResponseReader } from './response-reader.ts';

interface Heard {
  readonly infos: number[];
  status: number | undefined;
  headers: readonly string[];
  body: string;
  trailers: readonly string[] | undefined;
  switched: string | undefined;
  rest: string;
}

function read(pieces: readonly string[], method = 'GET', thenEnds = false) {
  const heard: Heard = {
    infos: [],
    status: undefined,
    headers: [],
    body: '',
    trailers: undefined,
    switched: undefined,
    rest: '',
  };
  const reader = new ResponseReader(method, 4_096, {
    info: ({ status }) => void heard.infos.push(status),
    head: ({ status, headers }) => {
      heard.status = status;
      heard.headers = headers;
    },
    data: (bytes) => {
      heard.body += bytes.toString('latin1');
    },
    end: (trailers) => {
      heard.trailers = trailers;
    },
    switched: (head, rest) => {
      heard.status = head.status;
      heard.switched = rest.toString('latin1');
    },
  });
  for (const piece of pieces)
    heard.rest += reader.read(Buffer.from(piece, 'latin1'))?.toString('latin1') ?? '';
  if (thenEnds) reader.finish();
  return { heard, reader };
}

const answer = (...lines: string[]) => lines.join('\r\n');

describe('a response reader', () => {
  it('reads a body of a known length, and returns the bytes after it', () => {
    const { heard, reader } = read([
      answer('HTTP/1.1 200 OK', 'Content-Length: 5', 'X-A: b', '', 'helloHTTP'),
    ]);
    expect(heard).toMatchObject({
      status: 200,
      headers: ['Content-Length', '5', 'X-A', 'b'],
      body: 'hello',
      trailers: [],
      rest: 'HTTP',
    });
    expect(reader.keptFor).toEqual({ promisedMs: undefined });
  });

  it('reads chunks and trailers', () => {
    const chunked = answer(
      'HTTP/1.1 200 OK',
      'Transfer-Encoding: chunked',
      '',
      '5;x=y',
      'hello',
      '6',
      ' world',
      '0',
      'X-Sum: 11',
      '',
      '',
    );
    expect(read([chunked]).heard).toMatchObject({ body: 'hello world', trailers: ['X-Sum', '11'] });
  });

  it('reads informational responses', () => {
    const early = answer(
      'HTTP/1.1 100 Continue',
      '',
      'HTTP/1.1 103 Early Hints',
      'Link: </a>',
      '',
      'HTTP/1.1 204 No Content',
      '',
      '',
    );
    expect(read([early]).heard).toMatchObject({ infos: [100, 103], status: 204, trailers: [] });
  });

  it('reads a body that ends with the connection', () => {
    const { heard, reader } = read(['HTTP/1.0 200 OK\r\n\r\nhel', 'lo'], 'GET', true);
    expect(heard).toMatchObject({ body: 'hello', trailers: [] });
    expect(reader.keptFor).toBeNull();
  });

  it.each([
    ['HEAD', answer('HTTP/1.1 200 OK', 'Content-Length: 5', '', '')],
    ['GET', answer('HTTP/1.1 304 Not Modified', 'Content-Length: 5', '', '')],
    ['GET', answer('HTTP/1.1 204 No Content', '', '')],
    ['GET', answer('HTTP/1.1 200 OK', 'Content-Length: 0', '', '')],
  ])('a response to %s may have no body: %j', (method, text) => {
    const { heard, reader } = read([text], method);
    expect(heard).toMatchObject({ body: '', trailers: [] });
    expect(reader.isOver).toBe(true);
  });

  it('hands over the bytes after a protocol switch', () => {
    const text = answer('HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', '', '\x81\x02hi');
    expect(read([text]).heard).toMatchObject({ status: 101, switched: '\x81\x02hi', rest: '' });
  });

  it('accepts lines that end with a bare line feed', () => {
    expect(read(['HTTP/1.1 200 OK\nContent-Length: 2\n\nok']).heard).toMatchObject({
      body: 'ok',
      trailers: [],
    });
  });

  it.each([
    ['nothing like HTTP', 'hello\r\n'],
    ['an invalid status', 'HTTP/1.1 20 OK\r\n'],
    ['another version', 'HTTP/2.0 200 OK\r\n'],
    ['a header without a name', 'HTTP/1.1 200 OK\r\n: x\r\n'],
    ['a blank before the colon', 'HTTP/1.1 200 OK\r\nContent-Length : 5\r\n'],
    ['a folded line', 'HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n'],
    ['an invalid length', 'HTTP/1.1 200 OK\r\nContent-Length: 5a\r\n\r\n'],
    ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n'],
    ['an unrequested transfer coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n'],
    ['a chunk without a size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n'],
    ['a chunk that is too long', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n'],
    ['a head without an end', `HTTP/1.1 200 OK\r\n${'X-A: bbbbbbbbbbbbbb\r\n'.repeat(400)}`],
    ['a line without an end', `HTTP/1.1 200 OK\r\nX-A: ${'b'.repeat(5_000)}`],
    [
      'a chunk size without an end',
      `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(5_000)}`,
    ],
    [
      'endless trailers',
      `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${'X: y\r\n'.repeat(1_000)}`,
    ],
  ])('refuses %s', (_, text) => {
    expect(() => read([text])).toThrow(BadResponse);
  });

  it.each([
    ['in the head', 'HTTP/1.1 200 OK\r\nContent-Le'],
    ['before the body', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'],
    ['in the body', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe'],
    ['in a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe'],
    ['before the last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n'],
    ['in the trailers', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n'],
  ])('a response that breaks off %s is not taken for a complete one', (_, text) => {
    expect(() => read([text], 'GET', true)).toThrow(BadResponse);
  });

  it.each([
    [
      'both a length and chunks',
      '200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n',
    ],
    ['a length of what has no body', '204 No Content\r\nContent-Length: 5\r\n\r\n'],
    ['a length of what has not changed', '304 Not Modified\r\nContent-Length: 5\r\n\r\n'],
    ['chunks of what has no body', '204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n'],
    ['Connection: close', '200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n'],
  ])('after %s the connection is not reused', (_, rest) => {
    const { reader } = read([`HTTP/1.1 ${rest}`]);
    expect(reader.isOver).toBe(true);
    expect(reader.keptFor).toBeNull();
  });

  it("reads the server's keep-alive time", () => {
    const { reader } = read([
      'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=5, max=10\r\n\r\n',
    ]);
    expect(reader.keptFor).toEqual({ promisedMs: 5_000 });
  });

  it('reads the same however the bytes are split', () => {
    const body = fc.oneof(
      fc.string({ unit: 'binary-ascii', maxLength: 40 }).map((text) => ({
        wire: `Content-Length: ${text.length}\r\n\r\n${text}`,
        text,
      })),
      fc
        .array(fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 20 }), { maxLength: 5 })
        .map((chunks) => ({
          wire: `Transfer-Encoding: chunked\r\n\r\n${chunks
            .map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`)
            .join('')}0\r\nX-T: end\r\n\r\n`,
          text: chunks.join(''),
        })),
    );
    const cuts = fc.array(fc.nat({ max: 200 }), { maxLength: 12 });
    fc.assert(
      fc.property(body, cuts, fc.boolean(), ({ wire, text }, at, hasInfo) => {
        const whole = `${hasInfo ? 'HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n' : ''}HTTP/1.1 200 OK\r\nX-A: b\r\n${wire}rest`;
        const places = [...new Set(at.map((place) => place % whole.length))].sort((a, b) => a - b);
        const pieces = [0, ...places].map((start, i) => whole.slice(start, places[i] ?? whole.length));
        const { heard } = read(pieces);
        expect(heard.status).toBe(200);
        expect(heard.body).toBe(text);
        expect(heard.trailers).toBeDefined();
        expect(heard.rest).toBe('rest');
        expect(heard.infos).toEqual(hasInfo ? [103] : []);
      }),
      { numRuns: 500 },
    );
  });
});
