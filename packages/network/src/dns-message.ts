/** Encodes and decodes DNS messages. */
import {
  type Answer,
  decode,
  encode,
  type Packet,
  type Question,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
  TRUNCATED_RESPONSE,
} from 'dns-packet';

export const RCODES = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;
export type Rcode = keyof typeof RCODES;

export interface Query {
  readonly id: number;
  readonly question: Question;
  readonly isRecursionDesired: boolean;
  /** The largest datagram that the client accepts. */
  readonly datagramBytes: number;
  readonly hasExtension: boolean;
}

export interface Response {
  readonly rcode: Rcode;
  readonly answers: readonly Answer[];
}

const HEADER_BYTES = 12;
const PLAIN_DATAGRAM = 512;
/** Larger datagrams may be fragmented on the way. */
const MAX_DATAGRAM_BYTES = 1_232;

/** A query with one question, or the id and error code for a bad one, or undefined for a message that gets no answer. */
export function parseQuery(
  bytes: Buffer,
): Query | { readonly id: number; readonly rcode: Rcode } | undefined {
  if (bytes.length < HEADER_BYTES || isResponse(bytes)) return undefined;
  const id = bytes.readUInt16BE(0);
  if (opcodeOf(bytes) !== 0) return { id, rcode: 'NOTIMP' };
  // Checked before parsing, because the sender chooses how many questions follow.
  if (bytes.readUInt16BE(4) !== 1) return { id, rcode: 'FORMERR' };
  const packet = tryDecode(bytes);
  const question = packet?.questions?.[0];
  if (packet === undefined || question === undefined) return { id, rcode: 'FORMERR' };
  const extension = packet.additionals?.find((record) => record.type === 'OPT');
  return {
    id,
    question,
    isRecursionDesired: ((packet.flags ?? 0) & RECURSION_DESIRED) !== 0,
    datagramBytes: Math.min(Math.max(extension?.udpPayloadSize ?? 0, PLAIN_DATAGRAM), MAX_DATAGRAM_BYTES),
    hasExtension: extension !== undefined,
  };
}

export function encodeResponse(query: Query, { rcode, answers }: Response, most: number): Buffer {
  const flags = RECURSION_AVAILABLE | (query.isRecursionDesired ? RECURSION_DESIRED : 0) | RCODES[rcode];
  const packet: Packet = {
    type: 'response',
    id: query.id,
    flags,
    questions: [query.question],
    answers: [...answers],
    additionals: query.hasExtension ? [extension()] : [],
  };
  const bytes = encode(packet);
  return bytes.length <= most ? bytes : encode({ ...packet, flags: flags | TRUNCATED_RESPONSE, answers: [] });
}

export function encodeFailure(id: number, rcode: Rcode): Buffer {
  return encode({ type: 'response', id, flags: RCODES[rcode] });
}

function extension(): Answer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: MAX_DATAGRAM_BYTES,
    extendedRcode: 0,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
}

function isResponse(bytes: Buffer): boolean {
  return (bytes.readUInt8(2) & 0x80) !== 0;
}

function opcodeOf(bytes: Buffer): number {
  return (bytes.readUInt8(2) >> 3) & 0xf;
}

/** The library throws many kinds of errors for malformed bytes. */
function tryDecode(bytes: Buffer): Packet | undefined {
  try {
    return decode(bytes);
  } catch {
    return undefined;
  }
}
