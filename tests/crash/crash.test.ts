import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FAULT_POINTS, type FaultPoint } from '@torpor/engine';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { crashAt } from './campaign.ts';

/** The short form: one point of each kind of operation, the tightest. `npm run test:crash` is the long one. */
const TIGHTEST: readonly FaultPoint[] = [
  'create.start-started',
  'pause.seal-sealed',
  'pause.seal-committed',
  'resume.start-started',
  'snapshot.seal-captured',
  'rollback.seal-committed',
  'fork.seal-committed',
  'kill.kill-destroyed',
];

describe('a server that is killed', () => {
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'torpor-crash-'));
  });
  afterEach(() => rm(dataDir, { recursive: true }));

  it('has at least thirty named places to die at', () => {
    expect(new Set(FAULT_POINTS).size).toBeGreaterThanOrEqual(30);
    expect(FAULT_POINTS).toEqual(expect.arrayContaining([...TIGHTEST]));
  });

  it.each(TIGHTEST)(
    'at %s loses nothing and leaves nothing (R85, R112)',
    { timeout: 60_000 },
    async (point) => {
      await crashAt(point, dataDir);
    },
  );
});
