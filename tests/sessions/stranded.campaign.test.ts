import { randomBytes } from 'node:crypto';
import { systemClock } from '@torpor/engine';
import { databaseKinds } from '@torpor/engine/testing';
import { makeId, type SandboxId, type SessionId } from '@torpor/protocol';
import { DEFAULT_SESSION_SETTINGS } from '@torpor/sessions';
import { describe, expect, it } from 'vitest';
import {
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sandboxesMade,
  sessionWorld,
} from '../../packages/sessions/testing/session-world.ts';

const STRANDED = 2_206;
const ASKED = 100;

/** `npm run test:sessions`: sessions whose sandbox is unknown, lost, or without its checkpoint, in equal parts. */
describe.each(databaseKinds)('a database with 2,206 sessions with dead sandboxes on %s', (kind) => {
  it('answers a message to each of a hundred, reconciles the rest, and stays responsive (R75)', async () => {
    const here = await sessionWorld(kind, { parts: () => ({ clock: systemClock }) });
    try {
      const ids = await strand(here);
      const settings = { ...DEFAULT_SESSION_SETTINGS, healEveryMs: 250 };
      const sessions = await here.another({ clock: systemClock, settings });
      const before = await sandboxesMade(here.world);
      const began = performance.now();
      await sessions.start();
      const watch = watchLatency(() => sessions.list({ org: ORG }, '', 10));

      const asked = ids.toSorted(() => Math.random() - 0.5).slice(0, ASKED);
      for (const id of asked) {
        const turn = await sessions.send(caller, id, 'are you there?');
        for await (const _ of sessions.follow(ORG, id, turn.id, -1, new AbortController().signal)) void _;
        expect(await sessions.turn(ORG, id, turn.id)).toMatchObject({
          state: 'done',
          output: 'echo are you there?\n',
        });
      }
      const answeredMs = performance.now() - began;
      const rounds = Math.ceil(STRANDED / settings.sleepersAtOnce);
      await expect.poll(() => strandedStill(here), { timeout: 600_000, interval: 500 }).toBe(0);
      const healedMs = performance.now() - began;
      const latency = await watch.end();
      const { healed, failed } = await sessions.healing();
      console.log(
        JSON.stringify({
          kind,
          answeredMs,
          healedMs,
          healed,
          failed,
          rounds,
          everyMs: settings.healEveryMs,
          ...latency,
        }),
      );
      expect(failed).toBe(0);
      expect(healed + ASKED).toBeGreaterThanOrEqual(STRANDED);
      expect((await sandboxesMade(here.world)) - before).toBe(ASKED);
      expect(here.program.stdin).toHaveLength(ASKED);
      expect(latency.p99).toBeLessThan(5_000);
    } finally {
      await here.dispose();
    }
  });
});

/** A third of the sandboxes is unknown, a third lost, and a third paused with a missing checkpoint. */
async function strand({ world, sessions }: SessionWorld): Promise<SessionId[]> {
  const ids: SessionId[] = [];
  for (let i = 0; i < STRANDED; i++) ids.push((await sessions.open(ORG, `thread-${i}`, SPEC)).id);
  for (const [i, id] of ids.entries()) {
    const sandboxId = i % 3 === 0 ? makeId('sbx', randomBytes) : await deadSandbox(world, i % 3 === 1);
    await world.db.transaction((tx) =>
      tx.query('UPDATE sessions SET sandbox_id = $2, agent_thread_id = $3 WHERE id = $1', [
        id,
        sandboxId,
        'old',
      ]),
    );
  }
  return ids;
}

async function deadSandbox(
  { engine, runtime, store }: SessionWorld['world'],
  lost: boolean,
): Promise<SandboxId> {
  const { id } = (await engine.create(caller, {})).sandbox;
  if (lost) {
    runtime.vanish(id, true);
    await engine.compareOne(ORG, id);
    return id;
  }
  const { checkpoint } = await engine.pause(caller, id);
  await store.remove(checkpoint.id);
  return id;
}

async function strandedStill({ world }: SessionWorld): Promise<number> {
  const [row] = await world.db.query<{ count: number }>(
    `SELECT COUNT(*) AS count FROM sessions s LEFT JOIN sandboxes b ON b.id = s.sandbox_id
     WHERE s.sandbox_id IS NOT NULL AND COALESCE(b.state, 'gone') <> 'running'`,
  );
  return Number(row?.count);
}

/** Measures how long plain reads take in the meantime. */
function watchLatency(read: () => Promise<unknown>) {
  const taken: number[] = [];
  const stop = new AbortController();
  const loop = async () => {
    while (!stop.signal.aborted) {
      const began = performance.now();
      await read();
      taken.push(performance.now() - began);
      await systemClock.sleep(20);
    }
  };
  const running = loop();
  return {
    end: async () => {
      stop.abort();
      await running;
      const sorted = taken.toSorted((a, b) => a - b);
      const at = (share: number) => Math.round(sorted[Math.floor((sorted.length - 1) * share)] ?? 0);
      return { reads: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
    },
  };
}
