/** Dependencies of every part of the builds. */
import type { Clock, Database, Ids, Report } from '@torpor/engine';
import type { RunnerName } from '@torpor/protocol';
import type { BuildSandboxes } from './ports/sandboxes.ts';
import type { Runner } from './runners/runner.ts';
import type { BuildSettings } from './settings.ts';

/**
 * Points at which a test campaign lets the server crash: right after the start of each stage is written, and between
 * any two effects. Listed in the order in which a build passes them. Only builds that do not become ready pass the
 * last three.
 */
export const BUILD_POINTS = [
  'queued',
  'starting',
  'scaffold',
  'code',
  'generated',
  'deps',
  'created',
  'installed',
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
  /** The runner `none` has no entry: such a build makes no files. */
  readonly runners: ReadonlyMap<RunnerName, Runner>;
  readonly settings: BuildSettings;
  /** Texts that must never appear in a log. */
  readonly secrets: readonly string[];
  /** Reports problems to the operator. */
  readonly report: Report;
  /** Called between effects, for the test campaign. Does nothing in a real server. */
  readonly pass: (point: BuildPoint) => Promise<void> | void;
  readonly serverId: string;
  /** No other server can use this database. */
  readonly alone: boolean;
}

/** The name of the builds' queue in the engine. */
export const QUEUE = 'builds';
/** Notification channels for events and log lines of builds. */
export const EVENT_CHANNEL = 'builds';
export const LOG_CHANNEL = 'build-logs';
