import type { Instance } from '@torpor/engine';
import { describe, expect, it } from 'vitest';
import { instanceName, instanceOfName, serverTag } from './instance-names.ts';

const tag = serverTag('/var/lib/torpor');
const of = (generation: number): Instance => ({ sandboxId: `sbx_${'a'.repeat(20)}`, generation });

describe('the name of an instance', () => {
  it('is parsed by its own server, and not by another', () => {
    expect(instanceOfName(tag, instanceName(tag, of(12)))).toEqual(of(12));
    expect(instanceOfName(serverTag('/elsewhere'), instanceName(tag, of(12)))).toBeUndefined();
  });

  it('is not a prefix of another name: runsc would take one generation for the other', () => {
    const names = [1, 2, 10, 11, 100].map((generation) => instanceName(tag, of(generation)));
    for (const name of names) expect(names.filter((other) => other.startsWith(name))).toEqual([name]);
  });
});
