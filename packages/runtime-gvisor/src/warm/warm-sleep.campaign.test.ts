import { describe } from 'vitest';
import { whyNoGvisor } from '../../testing/gvisor-world.ts';
import { describeWarmSleep } from '../../testing/warm-sleep-rules.ts';

const why = await whyNoGvisor();

describe.skipIf(why !== null)('a paused sandbox that stays in memory', { timeout: 120_000 }, () => {
  describeWarmSleep();
});
