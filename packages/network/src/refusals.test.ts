import { ManualClock } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { type Refusal, Refusals, type RefusedAttempt } from './refusals.ts';

const attempt = (destination: string): RefusedAttempt => ({
  via: 'tcp',
  destination,
  name: null,
  reason: 'private_address',
  rule: null,
});

function told(options: { kindsPerWindow?: number } = {}) {
  const clock = new ManualClock();
  const records: Refusal[] = [];
  const refusals = new Refusals({
    onRefusal: (refusal) => records.push(refusal),
    clock,
    windowMs: 1_000,
    ...options,
  });
  const seen = () => records.map(({ instance, destination, count }) => `${instance} ${destination} ${count}`);
  return { clock, refusals, seen };
}

describe('refusals', () => {
  it('are reported at once when they are the first of their kind, and counted afterwards', async () => {
    const { clock, refusals, seen } = told();
    for (let times = 0; times < 1_000; times++) refusals.record('a', attempt('10.0.0.1:80'));
    refusals.record('b', attempt('10.0.0.1:80'));
    expect(seen()).toEqual(['a 10.0.0.1:80 1', 'b 10.0.0.1:80 1']);
    clock.advance(1_000);
    await expect.poll(seen).toEqual(['a 10.0.0.1:80 1', 'b 10.0.0.1:80 1', 'a 10.0.0.1:80 999']);
    refusals.record('a', attempt('10.0.0.1:80'));
    expect(seen().at(-1)).toBe('a 10.0.0.1:80 1');
    refusals.close();
  });

  it('give the reason as a sentence', () => {
    const messages: string[] = [];
    const refusals = new Refusals({
      onRefusal: ({ message }) => messages.push(message),
      clock: new ManualClock(),
    });
    refusals.record('a', attempt('10.0.0.1:80'));
    refusals.record('a', {
      via: 'tcp',
      destination: '198.51.100.1:443',
      name: 'bad.example',
      reason: 'denied',
      rule: '*.example',
    });
    refusals.record('a', {
      via: 'dns',
      destination: 'x.example',
      name: null,
      reason: 'not_allowed',
      rule: null,
    });
    refusals.close();
    expect(messages).toEqual([
      'A connection to 10.0.0.1:80 was refused: the address is private or reserved.',
      'A connection to 198.51.100.1:443 (bad.example) was refused: a rule of the deny list matches: *.example.',
      'The lookup of x.example was refused: no rule of the allow list matches.',
    ]);
  });

  it('are bounded in number, regardless of the number of destinations', async () => {
    const { clock, refusals, seen } = told({ kindsPerWindow: 3 });
    for (let port = 1; port <= 5_000; port++) refusals.record('a', attempt(`10.0.0.1:${port}`));
    expect(seen()).toHaveLength(3);
    clock.advance(1_000);
    await expect.poll(seen).toHaveLength(4);
    expect(seen().at(-1)).toBe('a others 4997');
    refusals.close();
  });

  it('report the counted ones on close', () => {
    const { refusals, seen } = told();
    refusals.record('a', attempt('10.0.0.1:80'));
    refusals.record('a', attempt('10.0.0.1:80'));
    refusals.close();
    expect(seen()).toEqual(['a 10.0.0.1:80 1', 'a 10.0.0.1:80 1']);
  });
});
