/**
 * Which addresses the server itself may connect to for its callers: the public internet, and networks that the operator
 * allows. Otherwise a caller of the API could make the server send requests to itself, to its neighbours and to the metadata
 * service of a cloud.
 */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Clock } from '@torpor/engine';
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import {
  contains,
  type Ipv4Network,
  parseIpv4,
  parseIpv4Network,
  Reachable,
  readRoutes,
} from './reachable.ts';

const MEANING = {
  host_address: 'an address of the host of Torpor',
  sandbox_address: 'an address of a sandbox',
  private_address: 'a private or reserved address',
} as const;

export interface AddressCheckOptions {
  /** Networks that the operator allows, also when they are private or belong to the host. */
  readonly allowed: readonly string[];
  /** The kernel's routing tables as text, which have all addresses of the host. */
  readonly readRoutes?: () => string;
  readonly clock: Clock;
  /** The error for an address that is not allowed. */
  readonly refused: (why: string) => TorporError;
}

export class AddressCheck {
  readonly #allowed: readonly Ipv4Network[];
  readonly #reachable: Reachable;
  readonly #refused: AddressCheckOptions['refused'];

  constructor({ allowed, readRoutes = routesIfKnown, clock, refused }: AddressCheckOptions) {
    this.#allowed = allowed.map(requireNetwork);
    this.#refused = refused;
    // The addresses of sandboxes are private, so they are refused without a list of their own.
    this.#reachable = new Reachable({ openNetworks: [], sandboxRanges: [], readRoutes, clock });
  }

  /** Throws unless the server may connect to the address. */
  requireAllowed(text: string): void {
    const address = parseIpv4(text);
    if (address === undefined) throw this.#refused(`${text} is not an IPv4 address`);
    if (this.#allowed.some((network) => contains(network, address))) return;
    const reason = this.#reachable.reasonUnreachable(address);
    if (reason !== undefined) throw this.#refused(`${text} is ${MEANING[reason]}`);
  }
}

/** `10.1.0.0/16`, or one address. */
export function isNetwork(text: string): boolean {
  return parseIpv4Network(text) !== undefined;
}

/** The IPv4 addresses of a name. */
export type Resolve = (name: string) => Promise<readonly string[]>;

export const resolveWithSystem: Resolve = async (name) =>
  (await lookup(name, { all: true, family: 4 })).map(({ address }) => address);

/**
 * The address to connect to. The name is resolved once, here: a second answer of the name server cannot lead the connection
 * elsewhere after the check.
 */
export async function checkedAddress(
  check: AddressCheck,
  resolve: Resolve,
  hostname: string,
): Promise<string> {
  const literal = hostname.replace(/^\[|\]$/g, '');
  if (isIP(literal) !== 0) {
    check.requireAllowed(literal);
    return literal;
  }
  const addresses = await resolve(hostname).catch((cause: unknown) => {
    throw new TorporError(
      'unreachable',
      `The name ${hostname} could not be resolved (${errnoOf(cause) ?? cause}).`,
      {
        cause,
      },
    );
  });
  // A name with a single forbidden address is refused: the others do not make it trustworthy.
  for (const address of addresses) check.requireAllowed(address);
  const [first] = addresses;
  if (first === undefined) throw new TorporError('unreachable', `The name ${hostname} has no IPv4 address.`);
  return first;
}

function requireNetwork(text: string): Ipv4Network {
  const network = parseIpv4Network(text);
  if (network === undefined) throw new TorporError('invalid_request', `"${text}" is not an IPv4 network.`);
  return network;
}

/** Only Linux has the routing tables. Elsewhere loopback, private and reserved addresses are refused all the same. */
function routesIfKnown(): string {
  return process.platform === 'linux' ? readRoutes() : '';
}
