/** A builds service for tests of the server, on its database, with sandboxes and a runner that the test controls. */
import { randomUUID } from 'node:crypto';
import {
  type BuildSandboxes,
  type BuildSettings,
  Builds,
  DEFAULT_BUILD_SETTINGS,
  type Runner,
} from '@torpor/builds';
import { APP } from '@torpor/builds/testing';
import type { RunnerName } from '@torpor/protocol';
import type { AppContext } from '../src/route-context.ts';

export function testBuilds(
  { db, clock, ids }: Pick<AppContext, 'db' | 'clock' | 'ids'>,
  sandboxes: BuildSandboxes,
  { run = async () => APP, settings = {} }: { run?: Runner['run']; settings?: Partial<BuildSettings> } = {},
): Builds {
  return new Builds(
    {
      db,
      clock,
      ids,
      uuid: randomUUID,
      sandboxes,
      runners: new Map<RunnerName, Runner>([['starter', { run }]]),
      settings: { ...DEFAULT_BUILD_SETTINGS, firstLookMs: 1, longestLookMs: 5, resumeGapMs: 10, ...settings },
      secrets: [],
      report: () => {},
      pass: () => {},
      serverId: 'test',
      alone: true,
    },
    { defaultRunner: 'starter' },
  );
}
