import { type Fault, whyNotHollow } from '@torpor/pods/testing';
import type { SandboxId, SandboxState } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type HollowWorld, openHollowWorld } from './hollow-world.ts';

const why = whyNotHollow();
vi.setConfig({ testTimeout: 300_000, hookTimeout: 60_000 });

const FAULTS: readonly Fault[] = ['hang', 'drop', 'proxy', 401, 403, 409, 410, 429, 500, 503];
/** A minute, as the restart of an API server takes, is shown with one fault; the others end sooner. */
const LONG: Fault = 'drop';
const LONG_MS = 60_000;
const SHORT_MS = 3_000;

type Which = 'kubernetes' | 'agent-sandbox';
type Wire = (method: string, path: string) => boolean;

interface Situation {
  readonly runtimes: readonly Which[];
  /** What is done before the outage. */
  prepare?(world: HollowWorld, runtime: Which): Promise<SandboxId>;
  /** What the outage interrupts. */
  ask?(world: HollowWorld, runtime: Which, id: SandboxId): Promise<unknown>;
  /** The outage begins when this request of the server arrives. */
  readonly begins: Wire;
  readonly allowed: readonly SandboxState[];
}

const BOTH: readonly Which[] = ['kubernetes', 'agent-sandbox'];
const VOLUMES: readonly Which[] = ['agent-sandbox'];
const anything: Wire = () => true;
const aChange: Wire = (method) => method !== 'GET';
const aChangeOfPods: Wire = (method, path) => aChange(method, path) && !path.includes('/secrets');

const running = async ({ torpor }: HollowWorld, runtime: Which) =>
  (await torpor.sandboxes.create({ runtime })).id;
const paused = async (world: HollowWorld, runtime: Which) => {
  const id = await running(world, runtime);
  await world.torpor.sandboxes.pause(id);
  return id;
};

const SITUATIONS: Readonly<Record<string, Situation>> = {
  creating: {
    runtimes: BOTH,
    ask: running,
    begins: aChangeOfPods,
    allowed: ['running', 'failed'],
  },
  running: { runtimes: BOTH, prepare: running, begins: anything, allowed: ['running'] },
  pausing: {
    runtimes: VOLUMES,
    prepare: running,
    ask: ({ torpor }, _, id) => torpor.sandboxes.pause(id),
    begins: aChange,
    allowed: ['running', 'paused'],
  },
  paused: { runtimes: VOLUMES, prepare: paused, begins: anything, allowed: ['paused'] },
  resuming: {
    runtimes: VOLUMES,
    prepare: paused,
    ask: ({ torpor }, _, id) => torpor.sandboxes.resume(id),
    begins: aChangeOfPods,
    allowed: ['running', 'paused'],
  },
  killing: {
    runtimes: BOTH,
    prepare: running,
    ask: ({ torpor }, _, id) => torpor.sandboxes.kill(id),
    begins: aChange,
    allowed: ['killed'],
  },
};

const cases = Object.entries(SITUATIONS).flatMap(([state, situation]) =>
  situation.runtimes.flatMap((runtime) =>
    FAULTS.map((fault) => ({ state, situation, runtime, fault, ms: fault === LONG ? LONG_MS : SHORT_MS })),
  ),
);

describe.skipIf(why !== null)(`an API server that fails${why === null ? '' : `: ${why}`}`, () => {
  let world: HollowWorld;
  beforeAll(async () => {
    world = await openHollowWorld({ settings: ['runtimes.agentSandboxMs=5s', 'engine.collectEveryMs=1s'] });
  });
  afterAll(() => world?.[Symbol.asyncDispose]());

  /** Begins with the first request that fits. Resolves when the API server answers again. */
  function outage(fault: Fault, ms: number, begins: Wire): Promise<void> {
    const { api } = world.cluster;
    return new Promise((resolve) => {
      let isOut = false;
      api.faultOf = (method, path) => {
        if (!isOut && begins(method, path)) {
          isOut = true;
          api.dropWatches();
          setTimeout(() => {
            api.faultOf = () => undefined;
            resolve();
          }, ms);
        }
        return isOut ? fault : undefined;
      };
    });
  }

  async function onlySandbox(): Promise<SandboxId | undefined> {
    for await (const { id } of world.torpor.sandboxes.list({ state: ['creating', 'running', 'paused'] }))
      return id;
    return undefined;
  }

  it.each(cases)(
    'leaves a $state sandbox of $runtime in a true state: $fault for $ms ms (R70, R76, R77, R82)',
    async ({ situation, runtime, fault, ms }) => {
      const { sandboxes } = world.torpor;
      const prepared = await situation.prepare?.(world, runtime);
      const over = outage(fault, ms, situation.begins);
      await situation.ask?.(world, runtime, prepared ?? 'sbx_').catch(() => {});
      await over;

      const id = prepared ?? (await onlySandbox());
      if (id !== undefined) {
        const settled = async () => {
          const { state, evidence } = await sandboxes.get(id);
          return situation.allowed.includes(state) && evidence !== 'unknown'
            ? 'settled'
            : `${state}, ${evidence}`;
        };
        await expect.poll(settled, { timeout: 90_000, interval: 250 }).toBe('settled');
        if ((await sandboxes.get(id)).state === 'paused') await sandboxes.resume(id);
        if ((await sandboxes.get(id)).state === 'running') {
          expect((await sandboxes.exec(id, 'echo here')).stdout).toBe('here\n');
          await sandboxes.kill(id);
        }
      }
      await expect.poll(world.objects, { timeout: 60_000 }).toEqual([]);
    },
  );
});
