import { tmpdir } from 'node:os';
import { systemClock } from '@torpor/engine';
import { failureOf, unhurried } from '@torpor/engine/testing';
import type { LayerId } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import type { RuntimeContext } from '../runtime-context.ts';
import { withinLimits } from './template-limits.ts';

const limited = { name: 'x', upper: 'layer' as LayerId, limits: { diskMb: 1, memoryMb: 32 } };

function contextWith({ bytes = 0, kills = 0 }): RuntimeContext {
  return {
    layers: { usage: async () => ({ bytes, entries: 1 }) },
    cgroups: { refused: async () => ({ memory: kills, processes: 0 }) },
    clock: systemClock,
    directory: tmpdir(),
    report: () => {},
  } as unknown as RuntimeContext;
}

/** Ends only when it is aborted. */
const endless = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));

describe('a template that is being prepared', () => {
  it('fails when it writes more than a sandbox may', async () => {
    const ctx = contextWith({ bytes: 2 * 1024 * 1024 });
    const failure = await failureOf(withinLimits(ctx, limited, unhurried, endless));
    expect([failure.code, failure.message]).toEqual(['conflict', expect.stringContaining('1 MB')]);
  });

  it('fails when the kernel has killed a process for its memory', async () => {
    const failure = await failureOf(withinLimits(contextWith({ kills: 1 }), limited, unhurried, endless));
    expect([failure.code, failure.message]).toEqual(['conflict', expect.stringContaining('32 MB of memory')]);
  });

  it('returns the result or the error of its work within the limits', async () => {
    expect(await withinLimits(contextWith({}), limited, unhurried, async () => 'made')).toBe('made');
    const own = new TorporError('timeout', 'a service was not ready');
    const failing = withinLimits(contextWith({}), limited, unhurried, () => Promise.reject(own));
    await expect(failing).rejects.toBe(own);
  });
});
