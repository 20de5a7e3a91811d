/** The operator's configuration of builds: how many run at once, the plans of users, how long a runner may take. */
import {
  type BuildSettings,
  DEFAULT_BUILD_SETTINGS,
  type PlanChoice,
  planChangesSchema,
  planNamed,
  withChanges,
} from '@torpor/builds';
import { z } from 'zod';
import type { ServerConfig } from '../config.ts';

/** The configuration file has an object. A variable or a flag has the object as JSON text. */
function jsonOr<T extends z.ZodType>(schema: T) {
  return z.preprocess((given, context) => {
    if (typeof given !== 'string') return given;
    try {
      return JSON.parse(given);
    } catch {
      context.addIssue({ code: 'custom', message: 'is not JSON' });
      return z.NEVER;
    }
  }, schema);
}

export const buildConfigFields = {
  runnerSeconds: z.coerce.number().int().min(1).max(86_400).optional(),
  /** Builds that this server runs at once. */
  buildWorkers: z.coerce.number().int().min(1).max(256).optional(),
  /** How many builds of all users may wait in the queue. Further builds are refused. */
  buildWaiting: z.coerce.number().int().min(1).max(1_000_000).optional(),
  buildPlans: jsonOr(planChangesSchema.optional()),
  /** The plan of users who are not in `buildUsers`. */
  buildPlan: z.string().min(1).optional(),
  buildUsers: jsonOr(z.record(z.string().min(1), z.string().min(1)).optional()),
};

export type BuildConfig = Partial<z.infer<z.ZodObject<typeof buildConfigFields>>>;

/** Throws when a plan does not exist. */
export function planChoice({ buildPlans = {}, buildPlan, buildUsers = {} }: BuildConfig): PlanChoice {
  const plans = withChanges(buildPlans);
  const defaultPlan = buildPlan ?? DEFAULT_BUILD_SETTINGS.defaultPlan;
  for (const name of [defaultPlan, ...Object.values(buildUsers)]) planNamed(plans, name);
  return { plans, defaultPlan, planOfUser: buildUsers };
}

export function buildSettingsOf(config: BuildConfig & Pick<ServerConfig, 'configured'>): BuildSettings {
  const { builds, buildFiles } = config.configured.settings;
  return { ...builds, files: buildFiles, ...planChoice(config) };
}
