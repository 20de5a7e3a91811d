/**
 * How nodes know each other. Every request that a node passes on carries one header: who passes it on to whom, when, for
 * which client, and an HMAC over that and over method, target and host. Its key is derived from the cluster secret, which
 * no user has.
 *
 * Each request is signed, rather than each connection: a reverse proxy between two nodes may carry requests of several
 * senders on one connection. The names of both nodes are signed, so that a request for one node cannot be played back to
 * another. The time bounds how long a recorded request is of any use, and `ReplayWindow` refuses it within that time. Headers
 * and body are not signed: they are as trustworthy as the network between the nodes, which is why the address that a node
 * advertises may be an https address.
 */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { ReplayWindow } from './replay-window.ts';

/** In lower case, as Node gives it. */
export const HOP_HEADER = 'torpor-hop';
/** What a node says about a request that it did not take. */
export const HOP_RESULT_HEADER = 'torpor-hop-result';

/** The client of a request, as the node that it connected to has seen it. */
export interface HopClient {
  readonly remoteAddress: string;
  readonly scheme: 'http' | 'https';
  readonly localPort: number;
}

/** The part of a request that is signed. */
export interface SignedRequest {
  readonly method: string;
  readonly target: string;
  readonly host: string;
}

export interface PassedOn {
  /** The node that passed the request on. */
  readonly from: string;
  readonly client: HopClient;
}

export type HopRefusal = 'malformed' | 'other_node' | 'wrong_secret' | 'wrong_time' | 'repeated';

export interface HopSignerParts {
  /** The name of this node. */
  readonly self: string;
  /** The first signs, all are accepted: so a secret can be replaced while the nodes run. */
  readonly secrets: readonly Uint8Array[];
  readonly now: () => number;
  readonly randomBytes: (n: number) => Uint8Array;
  /** How far the clocks of two nodes may differ, with the time that a request takes. */
  readonly windowMs: number;
}

const VERSION = 'v1';
/** version from to time session number address scheme port mac */
const HEADER =
  /^v1 ([a-z0-9][a-z0-9-]{0,62}) ([a-z0-9][a-z0-9-]{0,62}) (\d{1,15}) ([0-9a-f]{32}) (\d{1,15}) ([0-9a-fA-F:.%\w-]{1,64}) (https?) (\d{1,5}) ([0-9a-f]{64})$/;
/** A client without an address, as one behind a socket in the file system. */
const NO_ADDRESS = '-';

export class HopSigner {
  readonly #parts: HopSignerParts;
  readonly #keys: readonly Uint8Array[];
  /** Identifies this process, so that its numbers need not survive a restart. */
  readonly #session: string;
  readonly #windows: ReplayWindow;
  #number = 0;

  constructor(parts: HopSignerParts) {
    this.#parts = parts;
    this.#keys = parts.secrets.map(
      (secret) => new Uint8Array(hkdfSync('sha256', secret, '', 'torpor hop v1', 32)),
    );
    this.#session = Buffer.from(parts.randomBytes(16)).toString('hex');
    this.#windows = new ReplayWindow(parts.windowMs * 2);
  }

  /** The value of the header for a request that is passed on. */
  sign(to: string, request: SignedRequest, { remoteAddress, scheme, localPort }: HopClient): string {
    const { self, now } = this.#parts;
    const address = remoteAddress === '' ? NO_ADDRESS : remoteAddress;
    const said = `${VERSION} ${self} ${to} ${Math.round(now())} ${this.#session} ${++this.#number} ${address} ${scheme} ${localPort}`;
    return `${said} ${mac(this.#keys[0] as Uint8Array, said, request)}`;
  }

  /** Who has passed the request on, or why the header is refused. A header is accepted once. */
  verify(value: string, request: SignedRequest): PassedOn | HopRefusal {
    const [, from, to, time, session, number, address, scheme, port, given] = HEADER.exec(value) ?? [];
    if (from === undefined || given === undefined) return 'malformed';
    const said = value.slice(0, -given.length - 1);
    // The signature comes first, so that the other answers tell a stranger nothing.
    if (!this.#keys.some((key) => isSame(given, mac(key, said, request)))) return 'wrong_secret';
    const { self, windowMs, now } = this.#parts;
    if (to !== self) return 'other_node';
    const at = now();
    if (Math.abs(at - Number(time)) > windowMs) return 'wrong_time';
    if (!this.#windows.accept(session as string, Number(number), at)) return 'repeated';
    return {
      from,
      client: {
        remoteAddress: address === NO_ADDRESS ? '' : (address as string),
        scheme: scheme as 'http' | 'https',
        localPort: Number(port),
      },
    };
  }
}

function mac(key: Uint8Array, said: string, { method, target, host }: SignedRequest): string {
  return createHmac('sha256', key).update(`${said}\n${method}\n${target}\n${host}`).digest('hex');
}

function isSame(given: string, wanted: string): boolean {
  return given.length === wanted.length && timingSafeEqual(Buffer.from(given), Buffer.from(wanted));
}
