/**
 * One line of an allow or deny list:
 *
 * | written | matches |
 * |---|---|
 * | `example.com` | that name |
 * | `*.example.com` | every name under it, at any depth, but not `example.com` itself |
 * | `198.51.100.7`, `198.51.100.0/24` | addresses |
 * | `2001:db8::1`, `2001:db8::/32` | nothing: sandboxes have no IPv6. Accepted because existing lists contain such entries |
 * | any of them with `:port` (IPv6 in brackets) | the same, on that port only |
 */
import { isIPv6 } from 'node:net';
import { normalName } from './host-name.ts';
import { contains, type Ipv4Network, parseIpv4Network } from './ipv4.ts';

export type Rule =
  | { readonly kind: 'name'; readonly text: string; readonly port: number | null; readonly name: string }
  | { readonly kind: 'under'; readonly text: string; readonly port: number | null; readonly name: string }
  | {
      readonly kind: 'network';
      readonly text: string;
      readonly port: number | null;
      readonly network: Ipv4Network;
    }
  | { readonly kind: 'ipv6'; readonly text: string; readonly port: number | null };

/** Undefined when the text is not a rule. */
export function parseRule(text: string): Rule | undefined {
  const bracketed = /^\[([^\]]*)\](?::(\d{1,5}))?$/.exec(text);
  const plain = /^([^:]*)(?::(\d{1,5}))?$/.exec(text);
  const [, host = text, digits] = bracketed ?? plain ?? [];
  const port = digits === undefined ? null : Number(digits);
  if (port !== null && (port < 1 || port > 65_535)) return undefined;
  if (isIPv6Network(host)) return { kind: 'ipv6', text, port };
  if (bracketed !== null) return undefined;
  const network = parseIpv4Network(host);
  if (network !== undefined) return { kind: 'network', text, port, network };
  const isUnder = host.startsWith('*.');
  const name = normalName(isUnder ? host.slice(2) : host);
  return name === undefined ? undefined : { kind: isUnder ? 'under' : 'name', text, port, name };
}

function isIPv6Network(text: string): boolean {
  const [address = '', prefix = '0', ...more] = text.split('/');
  return isIPv6(address) && more.length === 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= 128;
}

export function isAboutNames(rule: Rule): boolean {
  return rule.kind === 'name' || rule.kind === 'under';
}

export function coversPort(rule: Rule, port: number): boolean {
  return rule.port === null || rule.port === port;
}

export function matchesName(rule: Rule, name: string): boolean {
  if (rule.kind === 'name') return rule.name === name;
  return rule.kind === 'under' && name.endsWith(`.${rule.name}`);
}

export function matchesAddress(rule: Rule, address: number): boolean {
  return rule.kind === 'network' && contains(rule.network, address);
}
