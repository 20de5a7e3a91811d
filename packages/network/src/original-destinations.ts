/**
 * Finds the original destination of a redirected connection in the connection tracking table of the router.
 *
 * An entry has the addresses of both directions of a connection. The reply direction is what the egress sees, and the kernel
 * keeps it unique: when a sandbox uses one port for two destinations at once, the egress sees the second connection with
 * another port. So connections are looked up by the reply direction, never by the port that the sandbox chose.
 *
 * One read of the table serves all connections that arrived before the read began.
 */
import { readSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { runInNamespace } from './system-program.ts';

export interface Destination {
  readonly address: string;
  readonly port: number;
}

/** A TCP connection in the table. */
export interface TrackedConnection {
  readonly state: string;
  readonly from: Destination;
  readonly to: Destination;
  /** The source of reply packets. The next field is their destination. */
  readonly replyFrom: Destination;
  readonly replyTo: Destination;
}

/** Reads the whole table, one connection per line. */
export type ReadTable = () => Promise<string>;

/** A read can miss an entry while the kernel moves others. The next read finds it. */
const MAX_READS = 3;

export class OriginalDestinations {
  readonly #read: ReadTable;
  /** A read that has not begun yet, so that more connections may use it. */
  #next: Promise<ReadonlyMap<string, Destination>> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(read: ReadTable) {
    this.#read = read;
  }

  /** Undefined when the connection is not in the table: it was not redirected, or it is closed. */
  async of(socket: Socket): Promise<Destination | undefined> {
    const { localAddress = '', localPort = 0, remoteAddress = '', remotePort = 0 } = socket;
    const key = keyOf(
      { address: localAddress, port: localPort },
      { address: remoteAddress, port: remotePort },
    );
    for (let reads = 0; reads < MAX_READS; reads++) {
      const found = (await this.#join()).get(key);
      if (found !== undefined || socket.destroyed) return found;
    }
    return undefined;
  }

  #join(): Promise<ReadonlyMap<string, Destination>> {
    this.#next ??= this.#last.then(() => {
      this.#next = undefined;
      const reading = this.#read().then(byReply);
      this.#last = reading.catch(() => {});
      return reading;
    });
    return this.#next;
  }
}

function byReply(table: string): ReadonlyMap<string, Destination> {
  return new Map(parseTable(table).map(({ replyFrom, replyTo, to }) => [keyOf(replyFrom, replyTo), to]));
}

function keyOf(near: Destination, far: Destination): string {
  return `${near.address}:${near.port} ${far.address}:${far.port}`;
}

const LINE =
  /\btcp +6 (?:\d+ )?(\w+) src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+) .*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)/;

export function parseTable(table: string): TrackedConnection[] {
  return table.split('\n').flatMap((line) => {
    const fields = LINE.exec(line);
    if (fields === null) return [];
    const [, state = '', ...ends] = fields;
    const destination = (address: number, port: number) => ({
      address: ends[address] ?? '',
      port: Number(ends[port]),
    });
    return [
      {
        state,
        from: destination(0, 2),
        to: destination(1, 3),
        replyFrom: destination(4, 6),
        replyTo: destination(5, 7),
      },
    ];
  });
}

/** Size of one read. The kernel returns a page at a time. */
const CHUNK = 64 * 1024;
/** Number of synchronous reads before the event loop continues. */
const SLICE = 16;

/**
 * Reads the table from its file, or with the program `conntrack` where the kernel offers no file. The file is read
 * synchronously: the kernel answers from memory, and handing each page to Node's thread pool takes ten times as long.
 */
export function tableReader(netns: string, file: FileHandle | undefined): ReadTable {
  if (file === undefined) return () => runInNamespace(netns, 'conntrack', ['-L', '-p', 'tcp']);
  return async () => {
    const chunk = Buffer.alloc(CHUNK);
    const parts: string[] = [];
    let position = 0;
    for (let count = 1; ; count++) {
      const length = readSync(file.fd, chunk, 0, CHUNK, position);
      if (length === 0) return parts.join('');
      parts.push(chunk.toString('latin1', 0, length));
      position += length;
      if (count % SLICE === 0) await setImmediate();
    }
  };
}
