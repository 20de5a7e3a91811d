import { describe, expect, it } from 'vitest';
import { clientHello } from '../testing/client-hello.ts';
import { parseName } from './first-bytes.ts';

/** Splits the message into records of a few bytes each. */
function inSmallRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const parts: Buffer[] = [];
  for (let offset = 0; offset < message.length; offset += size) {
    const part = message.subarray(offset, offset + size);
    parts.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 0xff]), part);
  }
  return Buffer.concat(parts);
}

const http = (...lines: string[]) => parseName(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));

describe('the name that a TLS client shows', () => {
  it('is found in one piece, byte by byte, and in small records', async () => {
    const hello = await clientHello('Shop.Example');
    expect(parseName(hello)).toEqual({ is: 'name', name: 'shop.example' });
    for (let length = 1; length < hello.length; length += 7) {
      expect(parseName(hello.subarray(0, length))).toEqual({ is: 'more' });
    }
    const cut = inSmallRecords(hello, 3);
    expect(parseName(cut)).toEqual({ is: 'name', name: 'shop.example' });
    expect(parseName(cut.subarray(0, cut.length - 1))).toEqual({ is: 'more' });
  });

  it('may be missing', async () => {
    expect(parseName(await clientHello())).toEqual({ is: 'nameless' });
  });

  it('is unclear when there are two names or when lengths are wrong', async () => {
    const hello = await clientHello('one.example');
    const at = hello.indexOf('one.example');
    const tooLong = Buffer.from(hello);
    tooLong.writeUInt16BE(tooLong.readUInt16BE(at - 2) + 1, at - 2);
    expect(parseName(tooLong)).toEqual({ is: 'unclear' });
    const odd = Buffer.from(hello);
    odd.write('one\0example', at, 'latin1');
    expect(parseName(odd)).toEqual({ is: 'unclear' });
    expect(parseName(withExtension(hello, hello.subarray(at - 9, at + 11)))).toEqual({ is: 'unclear' });
  });

  it('is not searched for in other messages than the first', () => {
    expect(parseName(Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0]))).toEqual({ is: 'unclear' });
    expect(parseName(Buffer.from([22, 3, 1, 0, 0]))).toEqual({ is: 'unclear' });
    expect(parseName(Buffer.from([22, 9, 1]))).toEqual({ is: 'other' });
  });
});

/** Appends an extension and corrects all lengths around it. */
function withExtension(hello: Buffer, extension: Buffer): Buffer {
  const grown = Buffer.concat([hello, extension]);
  grown.writeUInt16BE(grown.length - 5, 3);
  grown.writeUIntBE(grown.length - 9, 6, 3);
  let offset = 9 + 2 + 32;
  offset += 1 + grown.readUInt8(offset);
  offset += 2 + grown.readUInt16BE(offset);
  offset += 1 + grown.readUInt8(offset);
  grown.writeUInt16BE(grown.length - offset - 2, offset);
  return grown;
}

describe('the host that an HTTP client names', () => {
  it('is the Host of the first request', () => {
    expect(http('GET / HTTP/1.1', 'Accept: *', 'hOsT:  Shop.Example:8080 ')).toEqual({
      is: 'name',
      name: 'shop.example',
    });
    expect(parseName(Buffer.from('\r\nget /x HTTP/1.1\nHost: shop.example\n\n'))).toEqual({
      is: 'name',
      name: 'shop.example',
    });
  });

  it('needs all headers', () => {
    expect(parseName(Buffer.from('GE'))).toEqual({ is: 'more' });
    expect(parseName(Buffer.from('GET / HTTP/1.1\r\nHost: shop.example\r\n'))).toEqual({ is: 'more' });
  });

  it('may be missing, or an address', () => {
    expect(http('GET / HTTP/1.0')).toEqual({ is: 'nameless' });
    expect(http('GET / HTTP/1.1', 'Host: 198.51.100.7:80')).toEqual({ is: 'nameless' });
    expect(http('GET / HTTP/1.1', 'Host: [2001:db8::1]')).toEqual({ is: 'nameless' });
    expect(http('PRI * HTTP/2.0', '', 'SM')).toEqual({ is: 'nameless' });
  });

  it.each([
    ['two Hosts', ['GET / HTTP/1.1', 'Host: a.example', 'Host: b.example']],
    ['a whole address of another host', ['GET http://b.example/ HTTP/1.1', 'Host: a.example']],
    ['a whole address with a user in front', ['GET http://a.example@b.example/ HTTP/1.1', 'Host: a.example']],
    ['a tunnel to another host', ['CONNECT b.example:443 HTTP/1.1', 'Host: a.example']],
    ['a continued line', ['GET / HTTP/1.1', 'Host: a.example', ' b.example']],
    ['a space before the colon', ['GET / HTTP/1.1', 'Host : b.example', 'Host: a.example']],
    ['a stray carriage return', ['GET / HTTP/1.1', 'X: a\rHost: b.example', 'Host: a.example']],
    ['a name that is none', ['GET / HTTP/1.1', 'Host: a.example/b.example']],
  ])('is unclear with %s', (_, lines) => {
    expect(http(...lines)).toEqual({ is: 'unclear' });
  });

  it('is the same when the request target names it too', () => {
    expect(http('GET http://a.example:80/ HTTP/1.1', 'Host: a.example')).toEqual({
      is: 'name',
      name: 'a.example',
    });
    expect(http('CONNECT a.example:443 HTTP/1.1', 'Host: a.example:443')).toEqual({
      is: 'name',
      name: 'a.example',
    });
  });

  it('is not searched for in other protocols', () => {
    expect(parseName(Buffer.from('SSH-2.0-OpenSSH_9.2\r\n'))).toEqual({ is: 'other' });
    expect(parseName(Buffer.from([0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]))).toEqual({ is: 'other' });
  });
});
