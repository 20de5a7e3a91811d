/** An engine without background rounds, on the runtime and checkpoint store of a test. */
import {
  createEngine,
  DEFAULT_SETTINGS,
  type Engine,
  type EngineDependencies,
  noFaults,
  openGate,
  randomIds,
  systemClock,
} from '@torpor/engine';
import type { FreshDatabase, RuntimeUnderTest } from '@torpor/engine/testing';

export function engineOn(
  { runtime, store }: Pick<RuntimeUnderTest, 'runtime' | 'store'>,
  { db }: FreshDatabase,
  report: EngineDependencies['report'] = () => {},
  more: Partial<EngineDependencies> = {},
): Engine {
  return createEngine({
    db,
    store,
    runtimes: new Map([[runtime.name, runtime]]),
    defaultRuntime: runtime.name,
    gate: openGate,
    clock: systemClock,
    ids: randomIds,
    settings: DEFAULT_SETTINGS,
    faults: noFaults,
    report,
    serverId: 'server-1',
    ownsDataDirectory: true,
    dataDirectoryId: 'home',
    ...more,
  });
}
