/**
 * Decides what a sandbox may reach. Pure functions without I/O.
 *
 * Whatever the lists say, the host, other sandboxes, and private, link-local and reserved addresses are unreachable
 * (`reachable.ts`). For all other addresses the first matching line decides:
 *
 * | | the connection | `internet` | `none` |
 * |---|---|---|---|
 * | 1 | a deny rule matches its address and port | refused | refused |
 * | 2 | a deny rule matches its name and port | refused | refused |
 * | 3 | an allow rule matches its address and port | passes | passes |
 * | 4 | an allow rule matches its name and port | passes | passes, to *our* resolution of the name |
 * | 5 | it shows no name, is neither TLS nor HTTP, and goes to an address that our resolver returned to this sandbox for a name that line 4 allows | passes | passes |
 * | 6 | anything else | passes | refused |
 *
 * - Without `mode`, an allow list means `none`, and no allow list means `internet`. With `internet` the allow list has no
 *   effect.
 * - The name is what the connection itself shows: the server name of TLS or the Host of HTTP. It is read only when a rule
 *   about names could decide. A connection that looks like TLS or HTTP and shows two names, or does not finish in time, is
 *   then refused. A connection without a name is refused by line 2 when our resolver returned its address to the sandbox
 *   only for names that are denied now.
 * - Denying a name stops programs that use the name. It does not stop a program that knows the address and hides the
 *   name. To block a destination reliably, use `none` with an allow list.
 * - Lookups follow the same rules: a deny rule without a port refuses the lookup. With `none` a name is looked up only if an
 *   allow rule matches it on any port.
 */
import { type Network, type SecretUse, TorporError } from '@torpor/protocol';
import { coversPort, isAboutNames, matchesAddress, matchesName, parseRule, type Rule } from './rule.ts';

export interface Policy {
  readonly mode: 'internet' | 'none';
  readonly allow: readonly Rule[];
  readonly deny: readonly Rule[];
  /** Secrets never allow a destination: they are put into requests that the lists allow. */
  readonly secrets: readonly SecretUse[];
}

/** The name that was observed in a connection. */
export type ObservedName =
  | { readonly is: 'name'; readonly name: string }
  /** TLS or HTTP without a name. */
  | { readonly is: 'nameless' }
  /** Another protocol, or no bytes so far. */
  | { readonly is: 'other' };

export interface Connection {
  readonly address: number;
  readonly port: number;
}

export type Decision =
  /** `address`: to its original destination. `name`: to our own resolution of the name. */
  | { readonly is: 'pass'; readonly by: 'address' | 'name' }
  | {
      readonly is: 'refuse';
      readonly why: 'denied' | 'not_allowed' | 'no_name';
      readonly rule: string | null;
    };

export const NOTHING_ALLOWED: Policy = { mode: 'none', allow: [], deny: [], secrets: [] };

export function policyOf({ mode, allow = [], deny = [], secrets = [] }: Network): Policy {
  const wrong = [...allow, ...deny].filter((text) => parseRule(text) === undefined);
  if (wrong.length > 0) {
    throw new TorporError('invalid_request', `Not a network rule: ${wrong.slice(0, 5).join(', ')}.`, {
      hint: 'Write a name, "*." and a name, an address or a network, each with an optional ":port".',
      details: { rules: wrong },
    });
  }
  const rules = (texts: readonly string[]) => texts.map(parseRule).filter((rule) => rule !== undefined);
  return {
    mode: mode ?? (allow.length > 0 ? 'none' : 'internet'),
    allow: rules(allow),
    deny: rules(deny),
    secrets,
  };
}

const PASS: Decision = { is: 'pass', by: 'address' };
const NOT_ALLOWED: Decision = { is: 'refuse', why: 'not_allowed', rule: null };

/** Decides by address alone. `needs_name` when the decision depends on the name. */
export function decideByAddress(
  policy: Policy,
  { address, port }: Connection,
): Decision | { readonly is: 'needs_name' } {
  const denied = policy.deny.find((rule) => coversPort(rule, port) && matchesAddress(rule, address));
  if (denied !== undefined) return refusedBy(denied);
  if (hasNameRule(policy.deny, port)) return { is: 'needs_name' };
  if (policy.mode === 'internet' || allowsAddress(policy, { address, port })) return PASS;
  return hasNameRule(policy.allow, port) ? { is: 'needs_name' } : NOT_ALLOWED;
}

/** Decides with the observed name. `resolvedFrom` are the names for which our resolver returned the address to this sandbox. */
export function decideByName(
  policy: Policy,
  connection: Connection,
  observed: ObservedName,
  resolvedFrom: readonly string[],
): Decision {
  const { port } = connection;
  const byAddress = decideByAddress(policy, connection);
  if (byAddress.is !== 'needs_name') return byAddress;
  if (observed.is === 'name') {
    const denied = policy.deny.find((rule) => coversPort(rule, port) && matchesName(rule, observed.name));
    if (denied !== undefined) return refusedBy(denied);
  }
  const isDenied = resolvedFrom.length > 0 && resolvedFrom.every((name) => deniesName(policy, name, port));
  if (observed.is !== 'name' && isDenied) return { is: 'refuse', why: 'denied', rule: null };
  if (policy.mode === 'internet' || allowsAddress(policy, connection)) return PASS;
  if (observed.is === 'name') {
    return allowsName(policy, observed.name, port) ? { is: 'pass', by: 'name' } : NOT_ALLOWED;
  }
  if (observed.is === 'nameless') return { is: 'refuse', why: 'no_name', rule: null };
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

function hasNameRule(rules: readonly Rule[], port: number): boolean {
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
