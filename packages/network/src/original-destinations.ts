/**
 * Where a redirected connection was meant to go, by the connection tracking table of the router.
 *
 * An entry says how the packets of a connection look on their way there and on their way back. The way back is
 * what our end sees, and the kernel keeps it unique: when a sandbox uses one of its ports for two destinations
 * at once, the second shows up under another port here. So the connection is looked up by that, never by the
 * port that the sandbox chose.
 *
 * One reading of the table serves every connection that arrived before it began.
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

/** One TCP connection in the table. */
export interface TrackedConnection {
  readonly state: string;
  readonly from: Destination;
  readonly to: Destination;
  /** Where answers come from and go to. */
  readonly replyFrom: Destination;
  readonly replyTo: Destination;
}

/** Reads the whole table, as text with one connection a line. */
export type ReadTable = () => Promise<string>;

/** An entry can be skipped while the kernel moves others about; one that is there is found the next time. */
const READINGS = 3;

export class OriginalDestinations {
  readonly #read: ReadTable;
  /** A reading that others may still join, because it has not begun. */
  #next: Promise<ReadonlyMap<string, Destination>> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(read: ReadTable) {
    this.#read = read;
  }

  /** Undefined when the connection is not in the table: then nobody redirected it, or it is over. */
  async of(socket: Socket): Promise<Destination | undefined> {
    const { localAddress = '', localPort = 0, remoteAddress = '', remotePort = 0 } = socket;
    const key = keyOf(
      { address: localAddress, port: localPort },
      { address: remoteAddress, port: remotePort },
    );
    for (let reading = 0; reading < READINGS; reading++) {
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

/** The kernel gives a page at a time. */
const CHUNK = 64 * 1024;
/** Chunks between two moments in which others get their turn. */
const SLICE = 16;

/**
 * The table as a file where the kernel shows it as one, and by the program `conntrack` elsewhere. The file is
 * read in place: it never waits for anybody, and handing each page to another thread takes ten times as long.
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
