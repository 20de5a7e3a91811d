import { describe, expect, it } from 'vitest';
import { egressOf, networkOf } from './network-rules.ts';

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
    // What is allowed anyway needs no rule, and must not become a list of all that is.
    [{ allowOut: ['1.1.1.1'] }, {}],
    // With E2B what is allowed wins.
    [{ allowOut: ['0.0.0.0/0'], denyOut: ['8.8.8.8'] }, {}],
  ])('%j is %j', (theirs, ours) => {
    expect(networkOf(theirs)).toEqual(ours);
  });

  it('an exception from a smaller denial is refused rather than misunderstood', () => {
    expect(() => networkOf({ allowOut: ['10.0.0.1'], denyOut: ['10.0.0.0/8'] })).toThrow(/not there yet/);
  });

  it('is told back as it was said', () => {
    expect(egressOf({})).toEqual({ allowOut: [], denyOut: [] });
    expect(egressOf({ mode: 'none', allow: ['example.com'] })).toEqual({
      allowOut: ['example.com'],
      denyOut: ['0.0.0.0/0'],
    });
    expect(egressOf({ mode: 'internet', deny: ['8.8.8.8'] })).toEqual({ allowOut: [], denyOut: ['8.8.8.8'] });
  });
});
