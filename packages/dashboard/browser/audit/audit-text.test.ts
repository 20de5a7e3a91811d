import type { AuditEntry } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { actorText, hasWords } from './audit-text.ts';

const KEY = 'key_aaaaaaaaaaaaaaaaaaaa';
const entry = {
  type: 'sandbox.paused',
  sandboxId: 'sbx_aaaaaaaaaaaaaaaaaaaa',
  position: 7,
  by: { keyId: KEY, subject: 'ana' },
  operation: { kind: 'pause', reason: 'request' },
} as Partial<AuditEntry> as AuditEntry;

describe('who asked for a change', () => {
  it('is a key by its name, with the user', () => {
    expect(actorText(entry, new Map([[KEY, 'ci']]))).toBe('ci, user ana');
    expect(actorText(entry, new Map())).toBe(`${KEY}, user ana`);
  });

  it('is the server when no key asked for it, with the reason', () => {
    const idle = { ...entry, by: null, operation: { kind: 'pause' as const, reason: 'idle' as const } };
    expect(actorText(idle, new Map())).toBe('the server: nobody used it');
    expect(actorText({ ...entry, by: null, operation: null }, new Map())).toContain('a visit');
  });
});

describe('a search in the audit', () => {
  it('finds entries that have all its words', () => {
    expect(hasWords(entry, 'ci, user ana', 'PAUSED ana')).toBe(true);
    expect(hasWords(entry, 'ci, user ana', 'paused ben')).toBe(false);
    expect(hasWords(entry, 'ci, user ana', '')).toBe(true);
  });
});
