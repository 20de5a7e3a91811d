/** What every part of the builds works with. */
import type { Clock, Database, Ids, Report } from '@torpor/engine';
import type { RunnerName } from '@torpor/protocol';
import type { BuildSandboxes } from './ports/sandboxes.ts';
import type { Runner } from './runners/runner.ts';
import type { BuildSettings } from './settings.ts';

/**
 * Where a campaign lets the server die: in each stage right after its beginning was written, and between any two
 * effects. In the order in which a build passes them; the last three are passed by those that do not become ready.
 */
export const BUILD_POINTS = [
  'queued',
  'starting',
  'scaffold',
  'code',
  'made',
  'deps',
  'created',
  'furnished',
  'checks',
  'published',
  'live',
  'ready',
  'paused',
  'failing',
  'failed',
  'cancelled',
] as const;
export type BuildPoint = `build.${(typeof BUILD_POINTS)[number]}`;

export interface BuildContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  /** For debug ids. */
  readonly uuid: () => string;
  readonly sandboxes: BuildSandboxes;
  /** `none` needs no runner: it is the build without one. */
  readonly runners: ReadonlyMap<RunnerName, Runner>;
  readonly settings: BuildSettings;
  /** Texts that must never stand in a log. */
  readonly secrets: readonly string[];
  /** What an operator should know and no caller waits for. */
  readonly report: Report;
  /** Passed between effects; outside of a campaign it costs nothing. */
  readonly pass: (point: BuildPoint) => Promise<void> | void;
  readonly serverId: string;
  /** No other server can be at work on this database. */
  readonly alone: boolean;
}

/** The queue of the engine that builds stand in. */
export const QUEUE = 'builds';
/** Told of every event of a build, and of every piece of log. */
export const EVENT_CHANNEL = 'builds';
export const LOG_CHANNEL = 'build-logs';
