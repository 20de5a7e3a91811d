import { describe, expect, it } from 'vitest';
import { egressOf, egressSchema, networkOf, ruleSecretsOf } from './network-rules.ts';

describe('what a sandbox may reach', () => {
  it.each([
    [{}, {}],
    [{ allow_internet_access: true }, {}],
    [{ allow_internet_access: false }, { mode: 'none' }],
    [{ denyOut: ['0.0.0.0/0'] }, { mode: 'none' }],
    [
      { allowOut: ['example.com'], denyOut: ['0.0.0.0/0'] },
      { mode: 'none', allow: ['example.com'] },
    ],
    [
      { allowOut: ['example.com'], allow_internet_access: false },
      { mode: 'none', allow: ['example.com'] },
    ],
    [{ denyOut: ['8.8.8.8'] }, { mode: 'internet', deny: ['8.8.8.8'] }],
    // An allowance of everything needs no rule. As a rule it would allow nothing else.
    [{ allowOut: ['1.1.1.1'] }, {}],
    // With E2B an allowance wins over a denial.
    [{ allowOut: ['0.0.0.0/0'], denyOut: ['8.8.8.8'] }, {}],
  ])('%j is %j', (theirs, ours) => {
    expect(networkOf(theirs)).toEqual(ours);
  });

  it('refuses an exception from a partial denial instead of misreading it', () => {
    expect(() => networkOf({ allowOut: ['10.0.0.1'], denyOut: ['10.0.0.0/8'] })).toThrow(/not supported yet/);
  });

  it('is returned as it was set', () => {
    expect(egressOf({})).toEqual({ allowOut: [], denyOut: [] });
    expect(egressOf({ mode: 'none', allow: ['example.com'] })).toEqual({
      allowOut: ['example.com'],
      denyOut: ['0.0.0.0/0'],
    });
    expect(egressOf({ mode: 'internet', deny: ['8.8.8.8'] })).toEqual({ allowOut: [], denyOut: ['8.8.8.8'] });
  });
});

describe('rules', () => {
  it('are headers for a host, which the sandbox does not see', () => {
    const rules = {
      'API.example.com': [{ transform: { headers: { Authorization: 'Bearer x', 'X-Team': 'y' } } }],
      '*.example.org': [{}, { transform: null }, { transform: { headers: { 'X-Key': 'z ' } } }],
    };
    expect(ruleSecretsOf(egressSchema.parse({ rules }))).toEqual([
      { host: 'api.example.com', header: 'Authorization', value: 'Bearer x' },
      { host: 'api.example.com', header: 'X-Team', value: 'y' },
      { host: '*.example.org', header: 'X-Key', value: 'z' },
    ]);
    expect(ruleSecretsOf({})).toEqual([]);
  });

  it('with placeholders of E2B are refused, which would be sent as they are', () => {
    for (const name of ['e2b.secrets.openai', 'e2b.identity.tokens.aws']) {
      const value = `Bearer $\{${name}}`;
      const rules = { 'api.example.com': [{ transform: { headers: { Authorization: value } } }] };
      expect(() => ruleSecretsOf(egressSchema.parse({ rules }))).toThrow(
        /\$\{e2b\.\S+\} is not supported yet/,
      );
    }
  });

  it.each([
    [{ '*': [] }],
    [{ 'https://example.com': [] }],
    [{ 'example.com': [{ transform: { headers: { Host: 'x' } } }] }],
    [{ 'example.com': [{ transform: { headers: { 'X-Key': 'a\r\nX-Other: b' } } }] }],
  ])('are refused when they cannot be kept: %j', (rules) => {
    expect(egressSchema.safeParse({ rules }).success).toBe(false);
  });
});
