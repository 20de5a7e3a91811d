/** An engine for tests: a real database, a runtime and a store in memory, a manual clock. */

import { createEngine, type Engine, type EngineDependencies } from '../src/engine.ts';
import { noFaults } from '../src/fault-points.ts';
import type { Database } from '../src/ports/database.ts';
import { randomIds } from '../src/ports/ids.ts';
import type { Runtime } from '../src/ports/runtime.ts';
import { openGate } from '../src/ports/traffic-gate.ts';
import { DEFAULT_SETTINGS, type Settings } from '../src/settings.ts';
import { type DatabaseKind, type FreshDatabase, freshDatabase } from './fresh-database.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryRuntime } from './memory-runtime.ts';
import { VirtualStore } from './virtual-files.ts';

export interface Reported {
  readonly what: string;
  readonly facts: Readonly<Record<string, unknown>>;
}

export interface World {
  readonly fresh: FreshDatabase;
  readonly db: Database;
  readonly clock: ManualClock;
  readonly store: VirtualStore;
  readonly runtime: MemoryRuntime;
  readonly reported: Reported[];
  readonly engine: Engine;
  /** Starts another engine on the same database, runtime and store: a second server, or the first after a restart. */
  another(parts?: Partial<EngineDependencies>): Promise<Engine>;
  dispose(): Promise<void>;
}

export interface WorldOptions {
  readonly settings?: Partial<Settings>;
  readonly runtimes?: (world: { readonly store: VirtualStore }) => readonly Runtime[];
  readonly parts?: (parts: EngineDependencies) => Partial<EngineDependencies>;
}

export async function makeWorld(kind: DatabaseKind, options: WorldOptions = {}): Promise<World> {
  const fresh = await freshDatabase(kind);
  const clock = new ManualClock();
  const store = new VirtualStore();
  const runtime = new MemoryRuntime({ files: store });
  const reported: Reported[] = [];
  const runtimes = new Map<string, Runtime>(
    [runtime, ...(options.runtimes?.({ store }) ?? [])].map((r) => [r.name, r]),
  );
  let servers = 0;
  const parts = (): EngineDependencies => {
    const base: EngineDependencies = {
      db: fresh.db,
      store,
      runtimes,
      defaultRuntime: runtime.name,
      gate: openGate,
      clock,
      ids: randomIds,
      settings: { ...DEFAULT_SETTINGS, ...options.settings },
      faults: noFaults,
      report: (what, facts) => reported.push({ what, facts }),
      serverId: `server-${++servers}`,
      ownsDataDirectory: false,
      dataDirectoryId: 'home',
    };
    return { ...base, ...options.parts?.(base) };
  };
  const engines: Engine[] = [];
  const another = async (more: Partial<EngineDependencies> = {}) => {
    const engine = createEngine({ ...parts(), ...more });
    await engine.start({ rounds: false });
    engines.push(engine);
    return engine;
  };
  const engine = await another();
  return {
    fresh,
    db: fresh.db,
    clock,
    store,
    runtime,
    reported,
    engine,
    another,
    dispose: async () => {
      await Promise.all(engines.map((one) => one.stop()));
      await fresh.dispose();
    },
  };
}
