import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { checkConcurrentBuilds } from '../../testing/concurrent-builds.ts';

describe.each(databaseKinds)('a hundred builds and four workers on %s', (kind) => {
  it('all end; limits hold, higher priorities run first, versions are unique (R9, R20, R21)', () =>
    checkConcurrentBuilds(kind, 100));
});
