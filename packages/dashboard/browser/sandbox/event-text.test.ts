import type { EventView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { eventText, eventTitle, weightOf } from './event-text.ts';

const event = (type: string, data: Record<string, unknown> = {}) => ({ type, data }) as unknown as EventView;

describe('the text of an event', () => {
  it('says what was kept, how large it is and how long it took', () => {
    const paused = event('sandbox.paused', {
      parts: { files: true, memory: true },
      bytes: 12_300_000,
      durationMs: 240,
      lost: [],
      reason: 'idle',
    });
    expect(eventTitle(paused)).toBe('Paused');
    expect(eventText(paused)).toBe('memory and files · idle · 12.3\u00a0MB · in\u00a0240\u00a0ms');
  });

  it('says what was lost', () => {
    const resumed = event('sandbox.resumed', { source: { kind: 'files' }, lost: ['processes'] });
    expect(eventText(resumed)).toBe('from files · lost processes');
  });

  it('says why something failed', () => {
    const failed = event('sandbox.resume_failed', { error: { code: 'timeout', message: 'Too slow.' } });
    expect(eventText(failed)).toBe('timeout: Too slow.');
    expect(weightOf(failed)).toBe('bad');
  });

  it('shows an unknown event by its type', () => {
    expect(eventTitle(event('job.restarted'))).toBe('Job restarted');
    expect(eventText(event('job.restarted', { anything: {} }))).toBe('');
  });
});
