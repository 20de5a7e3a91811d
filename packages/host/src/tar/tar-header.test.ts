import { describe, expect, it } from 'vitest';
import { streamProgram } from '../programs/stream-program.ts';
import { ByteReader } from './byte-reader.ts';
import { nextTarHeader, tarContent } from './tar-header.ts';

/** A stream of small chunks, so that blocks span several of them. */
async function* inChunks(...parts: (Buffer | string)[]): AsyncGenerator<Buffer> {
  const all = Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)),
  );
  for (let at = 0; at < all.length; at += 100) yield all.subarray(at, at + 100);
}

function block(fields: { name?: string; type?: string; size?: string; uid?: string; sum?: number }): Buffer {
  const { name = 'file', type = '0', size = '00000000000', uid = '0000000' } = fields;
  const header = Buffer.alloc(512);
  header.write(name, 0, 'latin1');
  header.write(`0000644\0${uid}\0${'0000000'}\0${size}\0${'00000000000'}\0`, 100, 'latin1');
  header.write(`        ${type}`, 148, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = fields.sum ?? header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}

const END = Buffer.alloc(1024);
const padded = (text: string) =>
  Buffer.concat([Buffer.from(text, 'latin1')], Math.ceil(text.length / 512) * 512);
const octal = (size: number) => size.toString(8).padStart(11, '0');
const reader = (...parts: (Buffer | string)[]) => new ByteReader(inChunks(...parts));

describe('nextTarHeader', () => {
  it('keeps names, attributes and times as GNU tar wrote them', async () => {
    const script = `cd "$(mktemp -d)" && printf content > "$1" && touch -d '2021-03-04 05:06:07.123456789Z' "$1" &&
      tar -c --format=pax --numeric-owner --pax-option=delete=atime,delete=ctime "$1"; rm -r "$PWD"`;
    const name = `${'long-'.repeat(40)}\\377`;
    const args = ['-c', `n=$(printf '${name}'); set -- "$n"; ${script}`];
    const archive = new ByteReader(streamProgram('sh', args));
    const header = await nextTarHeader(archive);
    expect(header).toMatchObject({
      path: `${'long-'.repeat(40)}\xff`,
      type: '0',
      mtime: '1614834367.123456789',
      size: 7,
    });
    const content: Buffer[] = [];
    for await (const piece of tarContent(archive, header?.size ?? 0)) content.push(piece);
    expect(Buffer.concat(content).toString()).toBe('content');
    expect(await nextTarHeader(archive)).toBeUndefined();
    await archive.finish();
  });

  it('reads GNU long names and ignores global records', async () => {
    const long = 'n'.repeat(300);
    const archive = reader(
      block({ type: 'g', size: octal(10) }),
      padded('10 path=x\n'),
      block({ type: 'L', size: octal(301) }),
      padded(`${long}\0`),
      block({ type: '5' }),
      END,
    );
    expect(await nextTarHeader(archive)).toMatchObject({ path: long, type: '5' });
    expect(await nextTarHeader(archive)).toBeUndefined();
  });

  it('continues a content after the piece that was read last', async () => {
    const archive = reader(
      block({ size: octal(600) }),
      padded('a'.repeat(600)),
      block({ name: 'next' }),
      END,
    );
    await nextTarHeader(archive);
    const content = tarContent(archive, 600);
    for await (const piece of content) {
      expect(piece.length).toBe(600);
      break;
    }
    for await (const _ of content) expect.unreachable();
    expect(await nextTarHeader(archive)).toMatchObject({ path: 'next' });
  });

  it.each([
    { what: 'a cut header', bytes: block({}).subarray(0, 300), why: 'ends in the middle' },
    { what: 'no end mark', bytes: Buffer.alloc(0), why: 'ends in the middle' },
    { what: 'a wrong checksum', bytes: block({ sum: 1 }), why: 'damaged' },
    { what: 'a size that is no number', bytes: block({ size: '0000000000x' }), why: 'not a size' },
    { what: 'an owner that is no number', bytes: block({ uid: '00000 x' }), why: 'not a user id' },
    { what: 'a huge name', bytes: block({ type: 'L', size: octal(1024 * 1024 + 1) }), why: 'too long' },
    {
      what: 'records of a size that is no number',
      bytes: block({ type: 'x', size: 'x'.repeat(11) }),
      why: 'too long',
    },
  ])('refuses $what', async ({ bytes, why }) => {
    await expect(nextTarHeader(reader(bytes))).rejects.toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining(why),
    });
  });

  it.each(['99 path=x\n', '0 path=x\n', 'x path=x\n'])('refuses the malformed record %j', async (record) => {
    const archive = reader(block({ type: 'x', size: octal(record.length) }), padded(record), block({}), END);
    await expect(nextTarHeader(archive)).rejects.toThrow('malformed records');
  });
});
