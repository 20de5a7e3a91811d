import { describe, expect, it } from 'vitest';
import { isTransportFault } from './transport-fault.ts';

function coded(code: string, more: object = {}): Error {
  return Object.assign(new Error('broken'), { code, ...more });
}

function wrapped(error: Error, times: number): Error {
  return times === 0 ? error : wrapped(new Error('outer', { cause: error }), times - 1);
}

describe('a transport fault', () => {
  it.each([
    'ECONNRESET',
    'ECONNREFUSED',
    'ETIMEDOUT',
    'EPIPE',
    'ERR_HTTP2_STREAM_ERROR',
    'ERR_HTTP2_GOAWAY_SESSION',
    'ERR_HTTP2_SESSION_ERROR',
    'UND_ERR_SOCKET',
  ])('is recognised by its code %s, also as a cause', (code) => {
    expect(isTransportFault(coded(code))).toBe(true);
    expect(isTransportFault(wrapped(coded(code), 4))).toBe(true);
  });

  it('is not searched for deeper than five causes', () => {
    expect(isTransportFault(wrapped(coded('ECONNRESET'), 5))).toBe(false);
  });

  it('is never recognised by its message', () => {
    expect(isTransportFault(new Error('ECONNRESET: Connection reset by peer, GOAWAY'))).toBe(false);
  });

  it.each([{ status: 500 }, { statusCode: 502 }, { response: { status: 503 } }])(
    'is never an error that carries a status: %j (R60)',
    (carried) => {
      expect(isTransportFault(coded('ECONNRESET', carried))).toBe(false);
      expect(isTransportFault(Object.assign(wrapped(coded('ECONNRESET'), 1), carried))).toBe(false);
      expect(isTransportFault(new Error('outer', { cause: coded('EPIPE', carried) }))).toBe(false);
    },
  );

  it('is not found in circular causes or in values that are not errors', () => {
    const circle = new Error('a');
    circle.cause = circle;
    expect(isTransportFault(circle)).toBe(false);
    for (const thing of [undefined, null, 'ECONNRESET', 7]) expect(isTransportFault(thing)).toBe(false);
  });
});
