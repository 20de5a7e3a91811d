import { FAULT_POINTS, FAULT_POINTS_BY_START } from '@torpor/engine';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type CrashedRuntime, type CrashPoint, crashAt, RUNTIME_POINTS } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

const noGvisor = await whyNoGvisor();
interface Server {
  readonly what: string;
  readonly runtime: CrashedRuntime;
  readonly points: readonly CrashPoint[];
  readonly env?: Readonly<Record<string, string>>;
}
const servers: Server[] = [{ what: 'processes', runtime: 'process', points: FAULT_POINTS }];
if (noGvisor === null) {
  const [what, runtime] = ['in gVisor, which stay in memory while they are paused', 'gvisor'] as const;
  servers.push({ what, runtime, points: [...FAULT_POINTS_BY_START, ...RUNTIME_POINTS] });
  const env = { TORPOR_RUNTIMES_WARM_KEEP_MS: '0' };
  servers.push({ what: 'in gVisor, which leave the memory', runtime, points: FAULT_POINTS_BY_START, env });
}

/** The long form, `npm run test:crash`: every fault point of every operation. */
describe.each(servers)(
  'a server with sandboxes $what that is killed at every fault point',
  ({ runtime, points, env = {} }) => {
    let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
    beforeEach(async () => {
      dataDir = await makeDataDir();
    });
    afterEach(() => dataDir.remove());

    it.each(points)('%s', { timeout: 120_000 }, async (point) => {
      await crashAt(point, dataDir.path, runtime, env);
    });
  },
);
