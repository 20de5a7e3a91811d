import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { checkConcurrentBuilds } from '../../testing/concurrent-builds.ts';

describe.each(databaseKinds)('many builds and four workers on %s', (kind) => {
  it('all end; caps hold, the urgent go first, versions differ (R9, R20, R21)', { timeout: 60_000 }, () =>
    checkConcurrentBuilds(kind, 16),
  );
});
