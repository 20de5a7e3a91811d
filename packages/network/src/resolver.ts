/**
 * The name server of the sandboxes. It asks the host's name servers and never uses the host's files. It returns no address
 * that a sandbox could not reach: a name with a private address is refused.
 *
 * Sandboxes have no IPv6, so there are no AAAA records. There are no HTTPS and SVCB records, which carry addresses and keys
 * for encrypting the server name, and no PTR records, which would reveal names of the host's network.
 */
import type { Socket as DatagramSocket } from 'node:dgram';
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '@torpor/engine';
import type { Answer, Question } from 'dns-packet';
import type { AttachedInstance } from './attached-instance.ts';
import { encodeFailure, encodeResponse, parseQuery, type Query, type Response } from './dns-message.ts';
import { toAnswer } from './dns-records.ts';
import { isLocalhost, normalName } from './host-name.ts';
import { parseIpv4 } from './ipv4.ts';
import { reset } from './joined-sockets.ts';
import { type AddressRecord, type Found, type LookUp, RECORD_TYPES, type RecordType } from './look-up.ts';
import { decideLookup } from './policy.ts';
import type { Reachable } from './reachable.ts';
import type { RefusalReason, Refusals } from './refusals.ts';

export interface ResolverContext {
  readonly reachable: Reachable;
  readonly lookUp: LookUp;
  readonly refusals: Refusals;
  readonly clock: Clock;
}

/** Longer than any valid query. */
const MAX_QUERY_BYTES = 4_096;
/** Concurrent lookups of one sandbox. */
const MAX_LOOKUPS = 128;
const MAX_STREAMS = 16;
const STREAM_IDLE_MS = 10_000;
const MAX_ADDRESSES = 16;
const MAX_TTL_SECONDS = 300;

/** Types that get an empty answer, although the name may exist. */
const EMPTY_TYPES: readonly string[] = ['AAAA', 'HTTPS', 'SVCB', 'UNKNOWN_64', 'UNKNOWN_65'];

const NOTHING: Response = { rcode: 'NOERROR', answers: [] };
const UNKNOWN: Response = { rcode: 'NXDOMAIN', answers: [] };
const FAILED: Response = { rcode: 'SERVFAIL', answers: [] };
const REFUSED: Response = { rcode: 'REFUSED', answers: [] };

export class Resolver {
  readonly #ctx: ResolverContext;
  readonly #find: (address: string) => AttachedInstance | undefined;
  readonly #datagrams: DatagramSocket;
  readonly #server: Server;
  readonly #lookups = new Map<AttachedInstance, number>();
  /** Of all sandboxes. */
  readonly #streams = new Set<Socket>();

  /** Both sockets are in the router already. */
  constructor(
    datagrams: DatagramSocket,
    listening: Server,
    find: (address: string) => AttachedInstance | undefined,
    ctx: ResolverContext,
  ) {
    this.#ctx = ctx;
    this.#find = find;
    this.#datagrams = datagrams;
    datagrams.on('error', () => {});
    datagrams.on('message', (bytes, { address, port }) => void this.#onDatagram(bytes, address, port));
    this.#server = createServer({ noDelay: true }, (socket) => this.#onStream(socket)).listen(listening);
  }

  async close(): Promise<void> {
    this.#datagrams.close();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#streams) reset(socket);
    await closed;
  }

  async #onDatagram(bytes: Buffer, address: string, port: number): Promise<void> {
    const instance = this.#find(address);
    if (instance === undefined || instance.isHeld || bytes.length > MAX_QUERY_BYTES) return;
    const answer = await this.#answer(instance, bytes, 'datagram');
    // Sending fails when the resolver was closed meanwhile.
    if (answer !== undefined) this.#datagrams.send(answer, port, address, () => {});
  }

  #onStream(socket: Socket): void {
    socket.on('error', () => {});
    const instance = this.#find(socket.remoteAddress ?? '');
    if (instance === undefined || instance.isHeld || instance.lookupStreams.size >= MAX_STREAMS)
      reset(socket);
    else this.#serve(instance, socket);
  }

  #serve(instance: AttachedInstance, socket: Socket): void {
    const sets = [this.#streams, instance.lookupStreams];
    for (const streams of sets) streams.add(socket);
    socket.once('close', () => {
      for (const streams of sets) streams.delete(socket);
    });
    socket.setTimeout(STREAM_IDLE_MS, () => reset(socket));
    this.#serveStream(instance, socket).catch(() => reset(socket));
  }

  /** A message follows its length. Each is answered before the next is read. */
  async #serveStream(instance: AttachedInstance, socket: Socket): Promise<void> {
    let rest = Buffer.alloc(0);
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE(0)) {
        const end = 2 + rest.readUInt16BE(0);
        const answer = await this.#answer(instance, rest.subarray(2, end), 'stream');
        if (answer === undefined) return reset(socket);
        const length = Buffer.alloc(2);
        length.writeUInt16BE(answer.length);
        socket.write(Buffer.concat([length, answer]));
        rest = rest.subarray(end);
      }
      if (rest.length > MAX_QUERY_BYTES) return reset(socket);
    }
    socket.end();
  }

  async #answer(
    instance: AttachedInstance,
    bytes: Buffer,
    by: 'datagram' | 'stream',
  ): Promise<Buffer | undefined> {
    const query = parseQuery(bytes);
    if (query === undefined) return undefined;
    if ('rcode' in query) return encodeFailure(query.id, query.rcode);
    const response = await this.#bounded(instance, query).catch(() => FAILED);
    return encodeResponse(query, response, by === 'datagram' ? query.datagramBytes : 65_535);
  }

  async #bounded(instance: AttachedInstance, { question }: Query): Promise<Response> {
    const running = this.#lookups.get(instance) ?? 0;
    if (running >= MAX_LOOKUPS) return FAILED;
    this.#lookups.set(instance, running + 1);
    try {
      return await this.#respond(instance, question);
    } finally {
      const left = (this.#lookups.get(instance) ?? 1) - 1;
      if (left === 0) this.#lookups.delete(instance);
      else this.#lookups.set(instance, left);
    }
  }

  async #respond(instance: AttachedInstance, question: Question): Promise<Response> {
    const { type } = question;
    const name = normalName(question.name);
    if (question.class !== 'IN') return { rcode: 'NOTIMP', answers: [] };
    if (name !== undefined && isLocalhost(name)) return type === 'A' ? loopback(question.name) : NOTHING;
    // A name without a dot belongs to the host's own network.
    if (name === undefined || !name.includes('.') || type === 'PTR') return UNKNOWN;
    const decision = decideLookup(instance.policy, name);
    if (decision.is === 'refuse') return this.#refuse(instance, name, decision.why, decision.rule);
    if (EMPTY_TYPES.includes(type)) return NOTHING;
    if (type === 'A') return this.#addresses(instance, question.name, name);
    if (!isRecordType(type)) return { rcode: 'NOTIMP', answers: [] };
    const found = await this.#ctx.lookUp.records(name, type);
    return responseTo(found, (record) => toAnswer(question.name, type, record));
  }

  async #addresses(instance: AttachedInstance, asked: string, name: string): Promise<Response> {
    const { lookUp, reachable, clock } = this.#ctx;
    const found = await lookUp.addresses(name);
    if (found.is !== 'found') return responseTo(found, () => []);
    const reasonUnreachable = ({ address }: AddressRecord) =>
      reachable.reasonUnreachable(parseIpv4(address) ?? 0);
    const usable = found.records.filter((record) => reasonUnreachable(record) === undefined);
    const [first] = found.records;
    if (first !== undefined && usable.length === 0) {
      return this.#refuse(instance, name, reasonUnreachable(first) ?? 'private_address');
    }
    const given = usable.slice(0, MAX_ADDRESSES);
    const numbers = given.map(({ address }) => parseIpv4(address) ?? 0);
    instance.resolved.remember(name, numbers, clock.monotonic());
    const answers = given.map(({ address, ttl }) =>
      addressAnswer(asked, address, Math.min(ttl, MAX_TTL_SECONDS)),
    );
    return { rcode: 'NOERROR', answers };
  }

  #refuse(
    instance: AttachedInstance,
    name: string,
    reason: RefusalReason,
    rule: string | null = null,
  ): Response {
    this.#ctx.refusals.record(instance.name, { via: 'dns', destination: name, name: null, reason, rule });
    return REFUSED;
  }
}

function responseTo<T>(found: Found<T>, answer: (record: T) => Answer | Answer[]): Response {
  if (found.is === 'failed') return FAILED;
  if (found.is === 'unknown') return UNKNOWN;
  return { rcode: 'NOERROR', answers: found.records.flatMap(answer) };
}

function loopback(name: string): Response {
  return { rcode: 'NOERROR', answers: [addressAnswer(name, '127.0.0.1', MAX_TTL_SECONDS)] };
}

function addressAnswer(name: string, address: string, ttl: number): Answer {
  return { name, type: 'A', class: 'IN', ttl, data: address };
}

function isRecordType(type: string): type is RecordType {
  return (RECORD_TYPES as readonly string[]).includes(type);
}
