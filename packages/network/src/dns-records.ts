/** Converts records of `node:dns` into the form in which they are sent. */
import type { CaaRecord, MxRecord, SoaRecord, SrvRecord } from 'node:dns';
import type { Answer } from 'dns-packet';
import type { RecordType } from './look-up.ts';

/** Seconds that clients may cache a record: `node:dns` tells the TTL of addresses only. */
const TTL = 60;

export function toAnswer(name: string, type: RecordType, record: unknown): Answer {
  switch (type) {
    case 'MX': {
      const { priority, exchange } = record as MxRecord;
      return { name, type, ttl: TTL, data: { preference: priority, exchange } };
    }
    case 'SRV': {
      const { priority, weight, port, name: target } = record as SrvRecord;
      return { name, type, ttl: TTL, data: { priority, weight, port, target } };
    }
    case 'SOA': {
      const { nsname, hostmaster, serial, refresh, retry, expire, minttl } = record as SoaRecord;
      const data = { mname: nsname, rname: hostmaster, serial, refresh, retry, expire, minimum: minttl };
      return { name, type, ttl: TTL, data };
    }
    case 'CAA': {
      const { critical, ...tags } = record as CaaRecord;
      const [tag, value] = (Object.entries(tags).find(([key]) => key !== 'type') ?? ['issue', '']) as [
        CaaTag,
        string,
      ];
      return { name, type, ttl: TTL, data: { flags: critical, tag, value } };
    }
    case 'TXT':
      return { name, type, ttl: TTL, data: record as string[] };
    case 'NS':
    case 'CNAME':
      return { name, type, ttl: TTL, data: record as string };
  }
}

type CaaTag = 'issue' | 'issuewild' | 'iodef';
