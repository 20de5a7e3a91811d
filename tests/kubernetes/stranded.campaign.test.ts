import type { SandboxId, SessionView } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { startLabServer } from './lab-server.ts';
import { POD_CLUSTERS, type PodCluster } from './pod-cluster.ts';
import { NAMESPACE } from './pod-subject.ts';
import { startStubCluster } from './stub-cluster.ts';

const STRANDED = Number(process.env['TORPOR_STRANDED'] ?? 2_206);
const ASKED = Math.min(100, STRANDED);
const AT_ONCE = 4;
vi.setConfig({ testTimeout: 1_500_000, hookTimeout: 300_000 });

const PROGRAM = {
  command: 'read -r line; cat log 2>/dev/null; echo "$line" >> log; echo "answered $line"',
  mode: 'turn',
} as const;

/** Calls `work` with every item, a few at once. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const left = [...items];
  const worker = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await work(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/**
 * A server whose cluster has lost everything: one half of the sessions has a paused sandbox on agent-sandbox, the other half
 * a running one on a pod, and neither the Sandboxes nor the pods exist. A cluster in memory, in which the sandboxes were
 * made, is exchanged for one that is empty.
 */
describe.each(Object.values(POD_CLUSTERS))('2,206 sessions without pods, then $what', ({ why, start }) => {
  let cluster: PodCluster;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeAll(async () => {
    if (why === null) cluster = await start();
    dataDir = await makeDataDir();
  });
  afterAll(async () => {
    await cluster?.stop();
    await dataDir?.remove();
  });

  const runtimeOf = (n: number) => (n % 2 === 0 ? 'agent-sandbox' : 'kubernetes');

  /** The sessions, with their sandboxes made in a cluster that is gone afterwards. */
  async function strand(): Promise<void> {
    await using stub = await startStubCluster(NAMESPACE);
    const variables = {
      ...cluster.variables,
      TORPOR_KUBERNETES_CONFIG: stub.kubeconfig,
      TORPOR_KUBERNETES_REACH: 'pod-ip',
    };
    const { torpor, stop } = await startLabServer(dataDir.path, {
      variables,
      settings: ['engine.reconcileEveryMs=1h'],
    });
    try {
      const numbers = Array.from({ length: STRANDED }, (_, n) => n);
      await each(numbers, async (n) => {
        const sandbox = { runtime: runtimeOf(n), onIdle: 'keep' as const };
        const session = await torpor.sessions.getOrSpawn(`thread-${n}`, { program: PROGRAM, sandbox });
        const id = session.view.sandboxId as SandboxId;
        if (runtimeOf(n) === 'agent-sandbox') await torpor.sandboxes.pause(id);
      });
    } finally {
      await stop();
    }
  }

  it.skipIf(why !== null)(
    'answers a message to each of a hundred, and heals all others by itself (R75, R76)',
    async () => {
      const began = performance.now();
      await strand();
      const strandedMs = performance.now() - began;
      const { variables } = cluster;
      const settings = ['engine.reconcileEveryMs=1s', 'sessions.healEveryMs=250ms'];
      const { torpor, stop } = await startLabServer(dataDir.path, { variables, settings });
      try {
        const begun = performance.now();
        const all: SessionView[] = [];
        for await (const session of torpor.sessions.list()) all.push(session);
        expect(all).toHaveLength(STRANDED);
        const answered: string[] = [];
        await each(all.toSorted(() => Math.random() - 0.5).slice(0, ASKED), async ({ id }) => {
          const session = await torpor.sessions.get(id);
          const { state, output } = await session.send('are you there?');
          expect({ state, output }).toEqual({ state: 'done', output: 'answered are you there?\n' });
          answered.push(id);
          // So that the node need not hold a hundred pods at once.
          const { sandboxId } = (await torpor.sessions.get(id)).view;
          await torpor.sandboxes.kill(sandboxId as SandboxId);
        });
        const answeredMs = performance.now() - begun;
        expect(answered).toHaveLength(ASKED);

        const stillStranded = async () => {
          let count = 0;
          for await (const { sandboxId } of torpor.sessions.list()) if (sandboxId !== null) count++;
          return count;
        };
        await expect.poll(stillStranded, { timeout: 900_000, interval: 2_000 }).toBe(0);
        const healedMs = performance.now() - begun;
        const left = async (state: 'running' | 'paused' | 'creating') => {
          const ids: string[] = [];
          for await (const { id } of torpor.sandboxes.list({ state: [state] })) ids.push(id);
          return ids;
        };
        await expect.poll(() => left('running'), { timeout: 300_000, interval: 2_000 }).toEqual([]);
        const { failed } = await torpor.sessions.healing();
        expect(failed).toBe(0);
        // Those that were paused say that their files are gone, until a resume finds the same, or they are deleted.
        const paused = await left('paused');
        const others: unknown[] = [];
        for await (const view of torpor.sandboxes.list({ state: ['paused'] })) {
          if (view.checkpointHealth?.health === 'missing') continue;
          const { items } = await torpor.eventPage({ sandboxId: view.id });
          others.push({ view, events: items.map(({ type, data }) => ({ type, data })) });
        }
        expect(JSON.stringify(others)).toBe('[]');
        console.log(
          JSON.stringify({
            stranded: STRANDED,
            strandedMs,
            asked: ASKED,
            answeredMs,
            healedMs,
            paused: paused.length,
          }),
        );
        expect((await torpor.fsck()).round).toMatchObject({ failed: 0 });
      } finally {
        await stop();
      }
    },
  );
});
