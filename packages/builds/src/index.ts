export { Builds, type BuildsOptions, NotReady } from './builds.ts';
export { BUILD_POINTS, type BuildContext, type BuildPoint } from './context.ts';
export type { Owner } from './jobs/job.ts';
export { PartExpired } from './jobs/retention.ts';
export { type PlanChanges, type PlanChoice, planChangesSchema, planNamed, withChanges } from './plans.ts';
export * from './ports/sandboxes.ts';
export { ResumeFailed } from './preview/resume.ts';
export { type CommandOptions, hostCommandRunner, sandboxCommandRunner } from './runners/command.ts';
export type { FileLimits, GeneratedFile } from './runners/generated-files.ts';
export { type OpenAiOptions, openaiRunner } from './runners/openai.ts';
export type { Runner, RunnerInput } from './runners/runner.ts';
export { starterRunner } from './runners/starter.ts';
export {
  BUILD_FILE_SETTING_ORDER,
  BUILD_FILE_SETTINGS,
  BUILD_SETTING_ORDER,
  BUILD_SETTINGS,
  type BuildSettings,
  DEFAULT_BUILD_SETTINGS,
} from './settings.ts';
