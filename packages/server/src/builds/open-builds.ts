/** Makes the builds service of the server, with the engine's sandboxes and the runners of the configuration. */
import { randomUUID } from 'node:crypto';
import {
  type BuildContext,
  type BuildSandboxes,
  type BuildSettings,
  Builds,
  hostCommandRunner,
  openaiRunner,
  type Runner,
  sandboxCommandRunner,
  starterRunner,
} from '@torpor/builds';
import type { Clock, Database, Ids, Report } from '@torpor/engine';
import type { RunnerName } from '@torpor/protocol';
import type { ServerConfig } from '../config.ts';
import { type BuildConfig, buildSettingsOf } from './build-config.ts';

export interface OpenBuildsContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly sandboxes: BuildSandboxes;
  readonly report: Report;
  readonly pass: BuildContext['pass'];
  readonly serverId: string;
  readonly alone: boolean;
}

type RunnerConfig = BuildConfig &
  Pick<
    ServerConfig,
    | 'configured'
    | 'runner'
    | 'runnerCommand'
    | 'runnerPlace'
    | 'runnerEnv'
    | 'openaiUrl'
    | 'openaiModel'
    | 'openaiKey'
    | 'openaiSteps'
    | 'openaiTokens'
  >;

const RETRIES = 2;

export function openBuilds(ctx: OpenBuildsContext, config: RunnerConfig): Builds {
  const settings = buildSettingsOf(config);
  const { openaiKey, runnerEnv = {} } = config;
  const context: BuildContext = {
    ...ctx,
    uuid: randomUUID,
    settings,
    runners: runnersOf(config, ctx.sandboxes, settings),
    secrets: [...Object.values(runnerEnv), ...(openaiKey === undefined ? [] : [openaiKey])].filter(isSecret),
  };
  return new Builds(context, { defaultRunner: config.runner });
}

/** Short values are ordinary words and are not hidden in logs. */
function isSecret(value: string): boolean {
  return value.length >= 12;
}

function runnersOf(config: RunnerConfig, sandboxes: BuildSandboxes, { files, runnerMs }: BuildSettings) {
  const runners = new Map<RunnerName, Runner>([['starter', starterRunner]]);
  const { runnerCommand: command, openaiUrl: baseUrl, openaiModel: model, openaiKey: apiKey } = config;
  if (command !== undefined) {
    const options = { command, timeoutMs: runnerMs, env: config.runnerEnv ?? {}, limits: files };
    const onHost = config.runnerPlace === 'host';
    runners.set('command', onHost ? hostCommandRunner(options) : sandboxCommandRunner(sandboxes, options));
  }
  if (baseUrl !== undefined && model !== undefined) {
    const budget = { maxSteps: config.openaiSteps, maxTokens: config.openaiTokens, retries: RETRIES };
    runners.set('openai', openaiRunner({ baseUrl, model, apiKey, limits: files, ...budget }));
  }
  return runners;
}
