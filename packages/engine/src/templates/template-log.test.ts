import { describe, expect, it } from 'vitest';
import { TemplateLog } from './template-log.ts';

describe('the log of templates', () => {
  it('has the lines of one template, oldest first', () => {
    const log = new TemplateLog();
    log.add('a', 'alpine', 1, 'unpacking');
    log.add('b', 'alpine', 2, 'of another organisation');
    log.add('a', 'alpine', 3, 'sealing');
    expect(log.read('a', 'alpine')).toEqual([
      { at: 1, text: 'unpacking' },
      { at: 3, text: 'sealing' },
    ]);
    expect(log.read('a', 'none')).toEqual([]);
  });

  it('forgets old lines, and templates without new ones', () => {
    const log = new TemplateLog();
    for (let at = 0; at < 600; at++) log.add('a', 'long', at, 'line');
    expect(log.read('a', 'long')).toHaveLength(500);
    expect(log.read('a', 'long').at(-1)?.at).toBe(599);
    for (let index = 0; index < 250; index++) {
      log.add('a', `other-${index}`, 600, 'line');
      log.add('a', 'long', 600, 'line');
    }
    expect(log.read('a', 'other-0')).toEqual([]);
    expect(log.read('a', 'other-249')).toHaveLength(1);
    expect(log.read('a', 'long')).toHaveLength(500);
  });
});
