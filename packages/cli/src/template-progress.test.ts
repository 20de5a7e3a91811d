import { describe, expect, it } from 'vitest';
import { withBar } from './template-progress.ts';

describe('the progress of a template', () => {
  it('has a bar when the phase counts bytes', () => {
    expect(withBar('unpacking layer 2 of 5: 30 of 120 MB')).toBe(
      '█████░░░░░░░░░░░░░░░ unpacking layer 2 of 5: 30 of 120 MB',
    );
    expect(withBar('unpacking layer 1 of 5: 0 of 120 MB')).toMatch(/^░{20} /);
    expect(withBar('unpacking layer 1 of 5: 121 of 120 MB')).toMatch(/^█{20} /);
    for (const phase of ['', 'booting', 'unpacking layer 2 of 5', 'unpacking layer 1 of 1: 0 of 0 MB'])
      expect(withBar(phase)).toBe(phase);
  });
});
