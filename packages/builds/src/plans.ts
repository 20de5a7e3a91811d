/**
 * Plans: limits for groups of users. Three are built in; the operator can change them, add others, and assign them to
 * users.
 */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

const planSchema = z.strictObject({
  /** Raises the priority in the queue. */
  boost: z.int().min(0).max(999),
  /** Builds of a user, and of a project, that may run at once. */
  perUser: z.int().min(1).max(10_000),
  perProject: z.int().min(1).max(10_000),
  /** Further builds are scheduled for the next day. */
  perDay: z.int().min(1).max(1_000_000),
  /** Iterations of one build before the user must confirm; three times this number is the hard limit. */
  iterations: z.int().min(0).max(10_000),
  /** The expected duration of a build before any has been measured. */
  usualSeconds: z.int().min(1).max(86_400),
});
export type Plan = Readonly<z.infer<typeof planSchema>>;

const planNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9][\w.-]{0,63}$/, 'a plan has a name of letters and digits');

/** As an operator writes them. Absent fields keep their values. */
export const planChangesSchema = z.record(planNameSchema, planSchema.partial());
export type PlanChanges = Readonly<z.infer<typeof planChangesSchema>>;

const large: Plan = { boost: 5, perUser: 10, perProject: 5, perDay: 200, iterations: 5, usualSeconds: 900 };

export const PLANS: Readonly<Record<string, Plan>> = {
  small: { boost: 0, perUser: 2, perProject: 2, perDay: 5, iterations: 2, usualSeconds: 480 },
  medium: { boost: 2, perUser: 3, perProject: 3, perDay: 50, iterations: 3, usualSeconds: 600 },
  large,
};
export const DEFAULT_PLAN = 'large';

/** A new plan starts from the values of the plan `large`. */
export function withChanges(changes: PlanChanges): Readonly<Record<string, Plan>> {
  const changed = Object.entries(changes).map(([name, change]) => {
    const before = Object.hasOwn(PLANS, name) ? PLANS[name] : large;
    return [name, planSchema.parse({ ...(before ?? large), ...change })] as const;
  });
  return { ...PLANS, ...Object.fromEntries(changed) };
}

export interface PlanChoice {
  readonly plans: Readonly<Record<string, Plan>>;
  readonly defaultPlan: string;
  readonly planOfUser: Readonly<Record<string, string>>;
}

export function planOf({ plans, planOfUser, defaultPlan }: PlanChoice, user: string) {
  const name = (Object.hasOwn(planOfUser, user) ? planOfUser[user] : undefined) ?? defaultPlan;
  return { name, ...planNamed(plans, name) };
}

export function planNamed(plans: PlanChoice['plans'], name: string): Plan {
  const plan = Object.hasOwn(plans, name) ? plans[name] : undefined;
  if (plan !== undefined) return plan;
  throw new TorporError('invalid_request', `There is no plan "${name}".`, {
    hint: `There are: ${Object.keys(plans).join(', ')}.`,
  });
}
