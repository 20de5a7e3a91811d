import { describe, expect, it } from 'vitest';
import { machineIdentity, processorOf } from './machine-identity.ts';

const CPUINFO = (mhz: string, flags: string) =>
  `processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t\t: ${mhz}\nflags\t\t: ${flags}\n\nprocessor\t: 1\nflags\t\t: x\n`;

describe('the processor', () => {
  it('is the same at another clock rate, and differs with other features', () => {
    expect(processorOf(CPUINFO('2000', 'fpu avx'))).toBe(processorOf(CPUINFO('3100', 'fpu avx')));
    expect(processorOf(CPUINFO('2000', 'fpu avx'))).not.toBe(processorOf(CPUINFO('2000', 'fpu')));
  });
});

describe('the host', () => {
  it('has a stable identity', async () => {
    expect(await machineIdentity()).toEqual(await machineIdentity());
  });
});
