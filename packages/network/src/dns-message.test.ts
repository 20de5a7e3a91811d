import { decode, encode } from 'dns-packet';
import { describe, expect, it } from 'vitest';
import { encodeResponse, parseQuery, type Query } from './dns-message.ts';
import { toAnswer } from './dns-records.ts';
import { RECORD_TYPES, type RecordType } from './look-up.ts';

describe('DNS messages', () => {
  const question = { name: 'a.example', type: 'A', class: 'IN' } as const;
  const asked = encode({ type: 'query', id: 7, flags: 256, questions: [question] });

  it('are answered only when they are queries', () => {
    expect(parseQuery(asked)).toMatchObject({
      id: 7,
      question,
      isRecursionDesired: true,
      datagramBytes: 512,
    });
    expect(parseQuery(Buffer.from('short'))).toBeUndefined();
    expect(parseQuery(encode({ type: 'response', id: 7, questions: [question] }))).toBeUndefined();
    expect(parseQuery(encode({ type: 'query', id: 7, questions: [question, question] }))).toEqual({
      id: 7,
      rcode: 'FORMERR',
    });
    expect(parseQuery(Buffer.concat([asked.subarray(0, 12), Buffer.from([0xc0, 0x0c])]))).toEqual({
      id: 7,
      rcode: 'FORMERR',
    });
    const update = Buffer.from(asked);
    update.writeUInt8(5 << 3, 2);
    expect(parseQuery(update)).toEqual({ id: 7, rcode: 'NOTIMP' });
  });

  it('have the truncation flag when they do not fit', () => {
    const answers = Array.from(
      { length: 100 },
      () => ({ name: 'a.example', type: 'A', ttl: 1, data: '198.51.100.1' }) as const,
    );
    const bytes = encodeResponse(parseQuery(asked) as Query, { rcode: 'NOERROR', answers }, 512);
    expect(decode(bytes)).toMatchObject({ flag_tc: true, answers: [] });
  });

  it('carry every supported type of record', () => {
    const records: Record<RecordType, unknown> = {
      CAA: { critical: 0, issue: 'ca.example', type: 'CAA' },
      CNAME: 'b.example',
      MX: { priority: 10, exchange: 'mx.example' },
      NS: 'ns.example',
      SOA: {
        nsname: 'ns.example',
        hostmaster: 'root.example',
        serial: 1,
        refresh: 2,
        retry: 3,
        expire: 4,
        minttl: 5,
      },
      SRV: { priority: 1, weight: 2, port: 3, name: 'srv.example' },
      TXT: ['one', 'two'],
    };
    const answers = RECORD_TYPES.map((type) => toAnswer('a.example', type, records[type]));
    const read = decode(
      encodeResponse(parseQuery(asked) as Query, { rcode: 'NOERROR', answers }, 65_535),
    ).answers;
    expect(read?.map(({ type }) => type)).toEqual([...RECORD_TYPES]);
    expect(read?.find(({ type }) => type === 'CAA')).toMatchObject({
      data: { tag: 'issue', value: 'ca.example' },
    });
    expect(read?.find(({ type }) => type === 'SRV')).toMatchObject({
      data: { port: 3, target: 'srv.example' },
    });
  });
});
