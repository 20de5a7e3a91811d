import type { Network } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { parseIpv4 } from './ipv4.ts';
import {
  type Connection,
  decideByAddress,
  decideByName,
  decideLookup,
  type ObservedName,
  policyOf,
} from './policy.ts';

const at = (address: string, port = 443): Connection => ({ address: parseIpv4(address) ?? 0, port });
const named = (name: string): ObservedName => ({ is: 'name', name });
const byAddress = (network: Network, connection: Connection) =>
  decideByAddress(policyOf(network), connection).is;
const byName = (
  network: Network,
  connection: Connection,
  shown: ObservedName,
  resolvedFrom: string[] = [],
) => {
  const decision = decideByName(policyOf(network), connection, shown, resolvedFrom);
  return decision.is === 'pass' ? decision.by : decision.why;
};

describe('the policy of a sandbox', () => {
  it('allows everything by default and nothing with "none"', () => {
    expect(byAddress({}, at('198.51.100.7'))).toBe('pass');
    expect(byAddress({ mode: 'none' }, at('198.51.100.7'))).toBe('refuse');
  });

  it('treats an allow list without a mode as "none"', () => {
    expect(byAddress({ allow: ['198.51.100.7'] }, at('198.51.100.7'))).toBe('pass');
    expect(byAddress({ allow: ['198.51.100.7'] }, at('198.51.100.8'))).toBe('refuse');
    expect(byAddress({ mode: 'internet', allow: ['198.51.100.7'] }, at('198.51.100.8'))).toBe('pass');
  });

  it('gives deny precedence over allow', () => {
    const network: Network = {
      mode: 'none',
      allow: ['198.51.100.0/24', 'good.example'],
      deny: ['198.51.100.7'],
    };
    expect(byAddress(network, at('198.51.100.7'))).toBe('refuse');
    expect(byName(network, at('198.51.100.7'), named('good.example'))).toBe('denied');
    expect(
      byName(
        { mode: 'none', allow: ['*.example'], deny: ['bad.example'] },
        at('198.51.100.8'),
        named('bad.example'),
      ),
    ).toBe('denied');
  });

  it('applies a rule with a port only to that port', () => {
    const network: Network = { mode: 'none', allow: ['198.51.100.7:80', 'good.example:443'], deny: [] };
    expect(byAddress(network, at('198.51.100.7', 80))).toBe('pass');
    expect(byAddress(network, at('198.51.100.7', 22))).toBe('refuse');
    expect(byName(network, at('198.51.100.9', 443), named('good.example'))).toBe('name');
    expect(byName(network, at('198.51.100.9', 8443), named('good.example'))).toBe('not_allowed');
    expect(byAddress({ deny: ['198.51.100.7:25'] }, at('198.51.100.7', 80))).toBe('pass');
    expect(byAddress({ deny: ['198.51.100.7:25'] }, at('198.51.100.7', 25))).toBe('refuse');
  });

  it('needs the name only when a rule about names could decide', () => {
    expect(byAddress({ deny: ['bad.example'] }, at('198.51.100.7'))).toBe('needs_name');
    expect(byAddress({ deny: ['bad.example:25'] }, at('198.51.100.7', 443))).toBe('pass');
    expect(byAddress({ mode: 'none', allow: ['good.example'] }, at('198.51.100.7'))).toBe('needs_name');
    expect(byAddress({ mode: 'none', allow: ['good.example', '198.51.100.7'] }, at('198.51.100.7'))).toBe(
      'pass',
    );
    expect(
      byAddress({ mode: 'none', allow: ['198.51.100.7'], deny: ['bad.example'] }, at('198.51.100.7')),
    ).toBe('needs_name');
  });

  it('dials our own resolution for an allowed name, and the original address for an allowed address', () => {
    const network: Network = { mode: 'none', allow: ['good.example', '198.51.100.7'], deny: ['bad.example'] };
    expect(byName(network, at('198.51.100.9'), named('good.example'))).toBe('name');
    expect(byName(network, at('198.51.100.7'), named('other.example'))).toBe('address');
    expect(byName(network, at('198.51.100.7'), named('bad.example'))).toBe('denied');
    expect(byName(network, at('198.51.100.9'), named('other.example'))).toBe('not_allowed');
  });

  it('matches "*." with every name below at any depth, and not with the name itself', () => {
    const network: Network = { mode: 'none', allow: ['*.good.example'] };
    expect(byName(network, at('198.51.100.9'), named('a.good.example'))).toBe('name');
    expect(byName(network, at('198.51.100.9'), named('a.b.good.example'))).toBe('name');
    expect(byName(network, at('198.51.100.9'), named('good.example'))).toBe('not_allowed');
    expect(byName(network, at('198.51.100.9'), named('notgood.example'))).toBe('not_allowed');
  });

  it('allows other protocols than TLS and HTTP to addresses that were resolved from allowed names', () => {
    const network: Network = { mode: 'none', allow: ['db.example:5432'], deny: [] };
    const connection = at('198.51.100.9', 5432);
    expect(byName(network, connection, { is: 'other' }, ['db.example'])).toBe('address');
    expect(byName(network, connection, { is: 'other' }, ['other.example'])).toBe('no_name');
    expect(byName(network, connection, { is: 'other' })).toBe('no_name');
    expect(byName(network, connection, { is: 'nameless' }, ['db.example'])).toBe('no_name');
    expect(byName(network, connection, named('other.example'), ['db.example'])).toBe('not_allowed');
  });

  it('refuses a connection without a name to an address that was resolved only from denied names', () => {
    const network: Network = { deny: ['bad.example'] };
    expect(byName(network, at('198.51.100.9', 22), { is: 'other' }, ['bad.example'])).toBe('denied');
    expect(byName(network, at('198.51.100.9', 22), { is: 'other' }, ['bad.example', 'good.example'])).toBe(
      'address',
    );
    expect(byName(network, at('198.51.100.9', 22), { is: 'nameless' })).toBe('address');
  });

  it('allows lookups of names that could be reached', () => {
    const lookup = (network: Network, name: string) => decideLookup(policyOf(network), name).is;
    expect(lookup({}, 'any.example')).toBe('pass');
    expect(lookup({ deny: ['bad.example'] }, 'bad.example')).toBe('refuse');
    expect(lookup({ deny: ['bad.example:25'] }, 'bad.example')).toBe('pass');
    expect(lookup({ mode: 'none' }, 'any.example')).toBe('refuse');
    expect(lookup({ mode: 'none', allow: ['good.example:443'] }, 'good.example')).toBe('pass');
    expect(lookup({ mode: 'none', allow: ['0.0.0.0/0'] }, 'any.example')).toBe('refuse');
  });

  it('compares names regardless of case, final dots and international spelling', () => {
    const network: Network = { mode: 'none', allow: ['BÜCHER.example.'] };
    expect(byName(network, at('198.51.100.9'), named('xn--bcher-kva.example'))).toBe('name');
  });

  it('accepts IPv6 in lists, where it matches nothing', () => {
    expect(
      byAddress({ mode: 'none', allow: ['2001:db8::/32', '[2001:db8::1]:443', '::/0'] }, at('198.51.100.9')),
    ).toBe('refuse');
  });

  it('names the texts that are not rules', () => {
    const wrong = [
      'https://example.com',
      '*',
      'a b',
      '198.51.100.0/33',
      'example.com:0',
      'example.com:99999',
      '*.*.example',
      '1.2.3',
      '-a.example',
      '[198.51.100.7]:80',
      '2001:db8::/129',
    ];
    for (const rule of wrong) {
      expect(() => policyOf({ allow: [rule] }), rule).toThrow(
        expect.objectContaining({ code: 'invalid_request' }),
      );
      expect(() => policyOf({ deny: ['ok.example', rule] }), rule).toThrow(rule);
    }
  });
});
