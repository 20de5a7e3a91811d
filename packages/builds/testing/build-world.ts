/** Builds for a test: a real database, a fake sandbox provider, a runner that the test defines, and a clock. */
import { randomUUID } from 'node:crypto';
import { type Clock, type Database, randomIds, systemClock } from '@torpor/engine';
import { type DatabaseKind, type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import {
  type BuildEvent,
  type BuildState,
  buildEventSchema,
  type JobId,
  type RunnerName,
} from '@torpor/protocol';
import { Builds } from '../src/builds.ts';
import type { BuildContext } from '../src/context.ts';
import { type BuildJob, findJob } from '../src/jobs/job.ts';
import { textFile } from '../src/runners/generated-files.ts';
import type { Runner, RunnerInput } from '../src/runners/runner.ts';
import { type BuildSettings, DEFAULT_BUILD_SETTINGS } from '../src/settings.ts';
import { FakeProvider } from './fake-provider.ts';

export const OWNER = { org: 'acme', user: 'ada' } as const;

/** A minimal application. */
export const APP = [
  textFile('package.json', JSON.stringify({ scripts: { start: 'node server.mjs' } })),
  textFile('server.mjs', 'console.log("hello")'),
];

export interface BuildWorld {
  readonly fresh: FreshDatabase;
  readonly db: Database;
  readonly ctx: BuildContext;
  readonly provider: FakeProvider;
  readonly builds: Builds;
  readonly reported: { readonly what: string; readonly facts: Readonly<Record<string, unknown>> }[];
  /** A second server on the same database; stopped with the first. */
  another(more?: Partial<BuildContext>): Builds;
  row(id: JobId): Promise<BuildJob>;
  eventsOf(id: JobId): Promise<BuildEvent[]>;
  statesOf(id: JobId): Promise<BuildState[]>;
  /** Resolves with the row when the build is over. */
  ended(id: JobId): Promise<BuildJob>;
  dispose(): Promise<void>;
}

/** Deletes all builds, which is faster than a new database. */
export async function emptyBuilds(db: Database): Promise<void> {
  await db.transaction(async (tx) => {
    for (const table of ['logs', 'events', 'files', 'jobs', 'projects', 'usage', 'durations', 'leftovers']) {
      await tx.query(`DELETE FROM build_${table}`);
    }
    await tx.query('DELETE FROM queue_jobs');
  });
}

export interface BuildWorldOptions {
  readonly clock?: Clock;
  readonly settings?: Partial<BuildSettings>;
  readonly run?: (order: RunnerInput, signal: AbortSignal) => Promise<typeof APP>;
  readonly runners?: ReadonlyMap<RunnerName, Runner>;
  /** Wraps the database, for example to inject errors. */
  readonly wrap?: (db: Database) => Database;
  /** False: no worker is started. */
  readonly working?: boolean;
}

export async function buildWorld(kind: DatabaseKind, options: BuildWorldOptions = {}): Promise<BuildWorld> {
  const fresh = await freshDatabase(kind);
  const clock = options.clock ?? systemClock;
  const provider = new FakeProvider(clock);
  const reported: BuildWorld['reported'][number][] = [];
  const runner: Runner = { run: options.run ?? (async () => APP) };
  const ctx: BuildContext = {
    db: options.wrap?.(fresh.db) ?? fresh.db,
    clock,
    ids: randomIds,
    uuid: randomUUID,
    sandboxes: provider,
    runners: options.runners ?? new Map([['starter', runner]]),
    settings: { ...DEFAULT_BUILD_SETTINGS, ...options.settings },
    secrets: ['the-servers-own-secret'],
    report: (what, facts) => reported.push({ what, facts }),
    pass: () => {},
    serverId: 'server-1',
    alone: false,
  };
  const all: Builds[] = [];
  const another = (more: Partial<BuildContext> = {}) => {
    const builds = new Builds({ ...ctx, ...more }, { defaultRunner: 'starter' });
    all.push(builds);
    return builds;
  };
  const builds = another();
  if (options.working ?? true) await builds.start();
  const row = async (id: JobId) => {
    const job = await findJob(fresh.db, id);
    if (job === undefined) throw new Error(`There is no job ${id}.`);
    return job;
  };
  const eventsOf = async (id: JobId) => {
    const rows = await fresh.db.query<{ data: string }>(
      'SELECT data FROM build_events WHERE job_id = $1 ORDER BY seq',
      [id],
    );
    return rows.map(({ data }) => buildEventSchema.parse(JSON.parse(data)));
  };
  return {
    fresh,
    db: fresh.db,
    ctx,
    provider,
    builds,
    reported,
    another,
    row,
    eventsOf,
    statesOf: async (id) =>
      (await eventsOf(id)).filter(({ type }) => type === 'build.stage.started').map(({ status }) => status),
    ended: async (id) => {
      const job = await row(id);
      const owner = { org: job.org, user: job.userId };
      const unhurried = new AbortController().signal;
      const events = await builds.followEvents(owner, id, { after: 0, until: 'over' }, unhurried);
      for await (const _ of events);
      return row(id);
    },
    dispose: async () => {
      await Promise.all(all.map((one) => one.stop()));
      await fresh.dispose();
    },
  };
}
