/**
 * What a sandbox may reach, decided from what is known. No I/O here.
 *
 * First of all, and whatever the lists say: the host, other sandboxes, and private, link-local and reserved
 * addresses are out of reach (`reachable.ts`). Then, the first line that fits:
 *
 * | | the connection | `internet` | `none` |
 * |---|---|---|---|
 * | 1 | a deny rule matches its address and port | refused | refused |
 * | 2 | a deny rule matches its name and port | refused | refused |
 * | 3 | an allow rule matches its address and port | passes | passes |
 * | 4 | an allow rule matches its name and port | passes | passes, to *our* resolution of the name |
 * | 5 | it shows no name, is neither TLS nor HTTP, and goes to an address that our resolver gave this sandbox for a name which line 4 lets pass | passes | passes |
 * | 6 | anything else | passes | refused |
 *
 * - Without `mode`, a list of what is allowed means `none`, and no such list means `internet`. With `internet`
 *   the allow list adds nothing.
 * - The name is what the connection itself shows: the server name of TLS, the Host of HTTP. It is read only
 *   when a rule about names could decide. What looks like TLS or HTTP and shows two names, or is not finished in
 *   time, is refused then. A connection that shows none is refused by line 2 when its address was given to the
 *   sandbox by our resolver for names that are all denied by now.
 * - Denying a name stops programs that use it, not one that knows an address and hides the name. What must not
 *   be reached by any means needs `none` and a list of what is allowed.
 * - Names are looked up under the same rules: a deny rule without a port refuses the lookup, and with `none`
 *   only names that an allow rule matches, on any port, are looked up.
 */
import { type Network, TorporError } from '@torpor/protocol';
import { coversPort, isAboutNames, matchesAddress, matchesName, parseRule, type Rule } from './rule.ts';

export interface Policy {
  readonly mode: 'internet' | 'none';
  readonly allow: readonly Rule[];
  readonly deny: readonly Rule[];
}

/** What a connection shows of its name. */
export type Shown =
  | { readonly is: 'name'; readonly name: string }
  /** TLS or HTTP, but no name in it. */
  | { readonly is: 'nameless' }
  /** Something else, or nothing so far. */
  | { readonly is: 'other' };

export interface Connection {
  readonly address: number;
  readonly port: number;
}

export type Decision =
  /** To the address it was meant for, or to our own resolution of the name. */
  | { readonly is: 'pass'; readonly by: 'address' | 'name' }
  | {
      readonly is: 'refuse';
      readonly why: 'denied' | 'not_allowed' | 'no_name';
      readonly rule: string | null;
    };

export const NOTHING_ALLOWED: Policy = { mode: 'none', allow: [], deny: [] };

export function policyOf({ mode, allow = [], deny = [] }: Network): Policy {
  const wrong = [...allow, ...deny].filter((text) => parseRule(text) === undefined);
  if (wrong.length > 0) {
    throw new TorporError('invalid_request', `Not a rule for the network: ${wrong.slice(0, 5).join(', ')}.`, {
      hint: 'Write a name, "*." and a name, an address or a network, each with ":port" if you like.',
      details: { rules: wrong },
    });
  }
  const rules = (texts: readonly string[]) => texts.map(parseRule).filter((rule) => rule !== undefined);
  return {
    mode: mode ?? (allow.length > 0 ? 'none' : 'internet'),
    allow: rules(allow),
    deny: rules(deny),
  };
}

const PASS: Decision = { is: 'pass', by: 'address' };
const NOT_ALLOWED: Decision = { is: 'refuse', why: 'not_allowed', rule: null };

/** By address alone; `ask` when it depends on the name. */
export function decideByAddress(
  policy: Policy,
  { address, port }: Connection,
): Decision | { readonly is: 'ask' } {
  const denied = policy.deny.find((rule) => coversPort(rule, port) && matchesAddress(rule, address));
  if (denied !== undefined) return refusedBy(denied);
  if (someNames(policy.deny, port)) return { is: 'ask' };
  if (policy.mode === 'internet' || allowsAddress(policy, { address, port })) return PASS;
  return someNames(policy.allow, port) ? { is: 'ask' } : NOT_ALLOWED;
}

/**
 * With what the connection shows. `resolvedFrom` are the names for which our resolver gave this sandbox the
 * address.
 */
export function decideByName(
  policy: Policy,
  connection: Connection,
  shown: Shown,
  resolvedFrom: readonly string[],
): Decision {
  const { port } = connection;
  const byAddress = decideByAddress(policy, connection);
  if (byAddress.is !== 'ask') return byAddress;
  if (shown.is === 'name') {
    const denied = policy.deny.find((rule) => coversPort(rule, port) && matchesName(rule, shown.name));
    if (denied !== undefined) return refusedBy(denied);
  }
  const isDenied = resolvedFrom.length > 0 && resolvedFrom.every((name) => deniesName(policy, name, port));
  if (shown.is !== 'name' && isDenied) return { is: 'refuse', why: 'denied', rule: null };
  if (policy.mode === 'internet' || allowsAddress(policy, connection)) return PASS;
  if (shown.is === 'name') {
    return allowsName(policy, shown.name, port) ? { is: 'pass', by: 'name' } : NOT_ALLOWED;
  }
  if (shown.is === 'nameless') return { is: 'refuse', why: 'no_name', rule: null };
  const isKnown = resolvedFrom.some(
    (name) => allowsName(policy, name, port) && !deniesName(policy, name, port),
  );
  return isKnown ? PASS : { is: 'refuse', why: 'no_name', rule: null };
}

/** Whether a name may be looked up. */
export function decideLookup(policy: Policy, name: string): Decision {
  const denied = policy.deny.find((rule) => rule.port === null && matchesName(rule, name));
  if (denied !== undefined) return refusedBy(denied);
  if (policy.mode === 'internet' || policy.allow.some((rule) => matchesName(rule, name))) return PASS;
  return NOT_ALLOWED;
}

function refusedBy(rule: Rule): Decision {
  return { is: 'refuse', why: 'denied', rule: rule.text };
}

function someNames(rules: readonly Rule[], port: number): boolean {
  return rules.some((rule) => isAboutNames(rule) && coversPort(rule, port));
}

function allowsAddress(policy: Policy, { address, port }: Connection): boolean {
  return policy.allow.some((rule) => coversPort(rule, port) && matchesAddress(rule, address));
}

function allowsName(policy: Policy, name: string, port: number): boolean {
  return policy.allow.some((rule) => coversPort(rule, port) && matchesName(rule, name));
}

function deniesName(policy: Policy, name: string, port: number): boolean {
  return policy.deny.some((rule) => coversPort(rule, port) && matchesName(rule, name));
}
