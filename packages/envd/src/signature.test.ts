import { describe, expect, it } from 'vitest';
import { checkSignature, makeSignature, sameSecret } from './signature.ts';

const file = { path: '/home/user/a.txt', operation: 'read' } as const;

describe('a signature of a file URL', () => {
  it('equals the signature that clients make themselves', () => {
    // sha256 of "/home/user/a.txt:read::token" and of "…:write:root:token:1700000000", in base64 without padding.
    expect(makeSignature(file, 'token')).toBe('v1_9d+9NQHwSJMj04fFBbl0/qkmU2zFSlzEB4IWXDbnuNE');
    const timed = { ...file, operation: 'write', user: 'root', expiration: 1_700_000_000 } as const;
    expect(makeSignature(timed, 'token')).toBe('v1_BCKpVqGjKXyCA13dQRjw/K2OAHH/cN8sEkDC9WUpEGg');
  });

  it('is accepted for exactly the file, operation, user, token and time it was made for', () => {
    const signed = { ...file, user: 'root', expiration: 2000 };
    const signature = makeSignature(signed, 'token');
    expect(checkSignature(signed, signature, 'token', 1999)).toBeUndefined();
    expect(checkSignature({ ...signed, path: '/etc/passwd' }, signature, 'token', 1999)).toBe(
      'invalid signature',
    );
    expect(checkSignature({ ...signed, operation: 'write' }, signature, 'token', 1999)).toBe(
      'invalid signature',
    );
    expect(checkSignature({ ...signed, user: 'user' }, signature, 'token', 1999)).toBe('invalid signature');
    expect(checkSignature({ ...signed, expiration: 3000 }, signature, 'token', 1999)).toBe(
      'invalid signature',
    );
    expect(checkSignature({ ...signed, expiration: undefined }, signature, 'token', 1999)).toBe(
      'invalid signature',
    );
    expect(checkSignature(signed, signature, 'other', 1999)).toBe('invalid signature');
  });

  it('is refused with the messages that clients look for', () => {
    const signed = { ...file, expiration: 2000 };
    expect(checkSignature(signed, undefined, 'token', 1999)).toBe('missing signature query parameter');
    expect(checkSignature(signed, '', 'token', 1999)).toBe('missing signature query parameter');
    const signature = makeSignature(signed, 'token');
    expect(checkSignature(signed, signature, 'token', 2001)).toBe('signature is already expired');
  });

  it('does not treat an expiration of NaN as no expiration', () => {
    const signed = { ...file, expiration: Number.NaN };
    expect(checkSignature(signed, makeSignature(file, 'token'), 'token', 0)).toBe('invalid signature');
  });
});

describe('comparing secrets', () => {
  it('distinguishes equal from different secrets of any length', () => {
    expect(sameSecret('abc', 'abc')).toBe(true);
    expect(sameSecret('abc', 'abd')).toBe(false);
    expect(sameSecret('', 'abc')).toBe(false);
  });
});
