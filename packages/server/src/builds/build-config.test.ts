import { tmpdir } from 'node:os';
import { DEFAULT_BUILD_SETTINGS } from '@torpor/builds';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../config.ts';
import { buildSettingsOf } from './build-config.ts';

const settings = async (env: NodeJS.ProcessEnv, argv: string[] = []) =>
  buildSettingsOf(await readConfig(argv, { HOME: '/home/ada', ...env }, tmpdir()));
const { small, large } = DEFAULT_BUILD_SETTINGS.plans;

describe('the configuration of builds (R21)', () => {
  it('has defaults for everything', async () => {
    expect(await settings({})).toEqual(DEFAULT_BUILD_SETTINGS);
  });

  it('sets every limit: per user, project and day, the queue and the workers', async () => {
    const env = {
      TORPOR_BUILD_WORKERS: '9',
      TORPOR_BUILD_WAITING: '7',
      TORPOR_RUNNER_SECONDS: '60',
      TORPOR_BUILD_PLANS: JSON.stringify({ small: { perDay: 1 }, staff: { boost: 999, iterations: 0 } }),
      TORPOR_BUILD_PLAN: 'small',
      TORPOR_BUILD_USERS: '{"ada":"staff"}',
    };
    expect(await settings(env, ['--build-workers', '2'])).toMatchObject({
      workers: 2,
      maxWaiting: 7,
      runnerMs: 60_000,
      plans: {
        small: { ...small, perDay: 1 },
        large,
        // Fields that a new plan leaves out are taken from the largest plan.
        staff: { ...large, boost: 999, iterations: 0 },
      },
      defaultPlan: 'small',
      planOfUser: { ada: 'staff' },
    });
  });

  it.each([
    [{ TORPOR_BUILD_WORKERS: '0' }, /--build-workers \(TORPOR_BUILD_WORKERS\): /],
    [{ TORPOR_BUILD_WAITING: 'many' }, /TORPOR_BUILD_WAITING/],
    [{ TORPOR_RUNNER_SECONDS: '-1' }, /TORPOR_RUNNER_SECONDS/],
    [{ TORPOR_BUILD_PLANS: '{' }, /\(TORPOR_BUILD_PLANS\): is not JSON\./],
    [{ TORPOR_BUILD_PLANS: '[]' }, /TORPOR_BUILD_PLANS/],
    [{ TORPOR_BUILD_PLANS: '{"small":{"perUser":0}}' }, /\(TORPOR_BUILD_PLANS\): small: perUser: /],
    [{ TORPOR_BUILD_PLANS: '{"small":{"boost":1000}}' }, /small: boost: /],
    [{ TORPOR_BUILD_PLANS: '{"small":{"prDay":1}}' }, /small: .*prDay/],
    [{ TORPOR_BUILD_PLANS: '{"a plan":{}}' }, /TORPOR_BUILD_PLANS/],
    [{ TORPOR_BUILD_PLAN: 'gold' }, /\(TORPOR_BUILD_PLAN\).*There is no plan "gold"/],
    [{ TORPOR_BUILD_USERS: '{"ada":"gold"}' }, /\(TORPOR_BUILD_USERS\): There is no plan "gold"/],
    [{ TORPOR_BUILD_PLAN: 'toString' }, /There is no plan/],
  ])('is refused when it is invalid: %j', async (env, message) => {
    await expect(settings(env)).rejects.toMatchObject({ code: 'invalid_request', message });
  });
});
