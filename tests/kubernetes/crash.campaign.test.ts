import { FAULT_POINTS, type FaultPoint } from '@torpor/engine';
import { HollowCluster, whyNotHollow } from '@torpor/pods/testing';
import type { SandboxId, Torpor } from '@torpor/sdk';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';

const why = whyNotHollow();
const KINDS = ['pods', 'secrets', 'sandboxes', 'sandboxclaims', 'persistentvolumeclaims'] as const;

type Which = 'kubernetes' | 'agent-sandbox' | 'agent-sandbox with a warm pool';

/** The operations that each runtime has. */
const OPERATIONS: Readonly<Record<Which, readonly string[]>> = {
  kubernetes: ['create', 'kill'],
  'agent-sandbox': ['create', 'pause', 'resume', 'kill'],
  'agent-sandbox with a warm pool': ['create'],
};
const cases = (Object.keys(OPERATIONS) as Which[]).flatMap((runtime) =>
  FAULT_POINTS.filter((point) => OPERATIONS[runtime].includes(point.split('.')[0] ?? '')).map((point) => ({
    runtime,
    point,
  })),
);

describe.skipIf(why !== null)(`a server on pods that is killed${why === null ? '' : `: ${why}`}`, () => {
  let cluster: HollowCluster;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    cluster = new HollowCluster();
    await cluster.start();
    dataDir = await makeDataDir();
  });
  afterEach(async () => {
    await cluster.stop();
    await dataDir.remove();
  });

  /** All but a warm pool, with what waits in it and its key. */
  const objects = () => {
    const [pool] = cluster.names('sandboxwarmpools');
    const all = KINDS.flatMap((kind) => cluster.names(kind));
    return pool === undefined ? all : all.filter((name) => name !== pool && !isWaiting(name));
  };
  const isWaiting = (name: string) => cluster.waiting().includes(name.replace(/^home-/, ''));

  /** Brings the sandbox to the operation, and begins the operation. */
  async function act(torpor: Torpor, point: FaultPoint): Promise<SandboxId | undefined> {
    const kind = point.split('.')[0];
    const idempotencyKey = 'crash';
    if (kind === 'create') {
      torpor.sandboxes.create({}, { idempotencyKey }).catch(() => {});
      return undefined;
    }
    const { id } = await torpor.sandboxes.create({});
    await torpor.sandboxes.exec(id, 'echo kept > file');
    if (kind === 'resume') await torpor.sandboxes.pause(id);
    const asked =
      kind === 'pause'
        ? torpor.sandboxes.pause(id)
        : kind === 'resume'
          ? torpor.sandboxes.resume(id)
          : torpor.sandboxes.kill(id);
    asked.catch(() => {});
    return id;
  }

  it.each(cases)(
    'at $point of $runtime leaves a true state and no orphan (R82)',
    { timeout: 180_000 },
    async ({ runtime: which, point }) => {
      const runtime = which === 'kubernetes' ? which : 'agent-sandbox';
      const pool = { TORPOR_KUBERNETES_WARM_POOL: which.endsWith('pool') ? '1' : '0' };
      const env = { ...cluster.variables, ...pool };
      const crashing = await startTorpor(
        dataDir.path,
        { ...env, TORPOR_FAULTS: '1', TORPOR_FAULT: point },
        runtime,
      );
      const podsWait = () => cluster.waiting().length === Number(pool.TORPOR_KUBERNETES_WARM_POOL);
      await expect.poll(podsWait, { timeout: 20_000 }).toBe(true);
      const known = await act(crashing.torpor, point);
      expect(await crashing.ended).toBe('SIGKILL');

      const { torpor, kill } = await startTorpor(dataDir.path, env, runtime);
      try {
        const id = known ?? (await torpor.sandboxes.create({}, { idempotencyKey: 'crash' })).id;
        if (point.startsWith('kill.')) {
          await expect
            .poll(async () => (await torpor.sandboxes.get(id)).state, { timeout: 60_000 })
            .toBe('killed');
        } else {
          const { state } = await torpor.sandboxes.get(id);
          expect(['running', 'paused']).toContain(state);
          if (state === 'paused') await torpor.sandboxes.resume(id);
          const { stdout } = await torpor.sandboxes.exec(id, 'cat file 2>/dev/null; echo here');
          expect(stdout).toBe(known === undefined ? 'here\n' : 'kept\nhere\n');
          await torpor.sandboxes.kill(id);
        }
        await torpor.fsck();
        await expect.poll(objects, { timeout: 60_000 }).toEqual([]);
      } finally {
        await kill('SIGTERM');
      }
    },
  );
});
