import type { WebhookView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { statusOf } from './webhook-status.ts';

const NOW = 1_000_000_000;
const webhook: WebhookView = {
  id: 'hook_aaaaaaaaaaaaaaaaaaaa',
  url: 'https://example.com',
  events: [],
  position: 5,
  waiting: 0,
  dead: 0,
  createdAt: 0,
  deliveredAt: null,
  error: null,
};

describe('the status of a webhook', () => {
  it('says when it delivered last', () => {
    expect(statusOf(webhook, NOW)).toEqual({ weight: 'good', text: 'nothing was sent yet' });
    expect(statusOf({ ...webhook, deliveredAt: NOW - 60_000 }, NOW).text).toBe('delivered 1\u00a0min ago');
  });

  it('says that it fails, what waits, and what was given up', () => {
    const error = { message: 'The receiver answered 500.', at: NOW - 60_000 };
    expect(statusOf({ ...webhook, waiting: 3, dead: 1, error }, NOW)).toEqual({
      weight: 'bad',
      text: 'last failure 1\u00a0min ago, 3 waiting, 1 given up',
    });
    expect(statusOf({ ...webhook, waiting: 3 }, NOW)).toEqual({ weight: 'warn', text: '3 waiting' });
  });
});
