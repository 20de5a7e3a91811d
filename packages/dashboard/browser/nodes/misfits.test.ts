import { describe, expect, it } from 'vitest';
import { misfitsOf } from './misfits.ts';

const node = (name: string, fingerprint: Record<string, string>) => ({ name, fingerprint });

describe('nodes whose memory images do not fit', () => {
  it('are grouped by runtime', () => {
    const nodes = [
      node('a', { gvisor: 'one', process: 'same' }),
      node('b', { gvisor: 'two', process: 'same' }),
      node('c', { gvisor: 'one' }),
    ];
    expect(misfitsOf(nodes)).toEqual([{ runtime: 'gvisor', groups: [['a', 'c'], ['b']] }]);
  });

  it('are none when a node lacks the runtime', () => {
    expect(misfitsOf([node('a', { gvisor: 'one' }), node('b', {})])).toEqual([]);
  });
});
