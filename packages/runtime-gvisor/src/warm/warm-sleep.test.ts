import { describe } from 'vitest';
import { whyNoGvisor } from '../../testing/gvisor-world.ts';
import { describeWarmSleep } from '../../testing/warm-sleep-rules.ts';

const why = await whyNoGvisor();

describe.skipIf(why !== null)('a paused sandbox that stays in memory', { timeout: 120_000 }, () => {
  describeWarmSleep([
    'is stopped, hidden from the engine, and goes on as the next generation with memory and files',
    'never writes into the sealed layer, and its checkpoint can be restored afterwards',
    'is restored from its checkpoint by the same start when its sentry has died',
    'says why it is not in memory when it died before it could be kept',
    'with too many changed files is destroyed, says why, and is warm again after the next wake',
    'goes first when the control group of all sandboxes runs short of memory, and no running sandbox is hurt',
    'is destroyed when its server was killed in the middle of the adoption, and its checkpoint is restored',
  ]);
});
