import { databaseKinds } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { caller, ORG, SPEC, sandboxesMade, sessionWorld, unreachable } from '../testing/session-world.ts';

describe.each(databaseKinds)('the life of a session on %s', (kind) => {
  it('continues through pauses, a failing resume, two servers and the loss of its sandbox', async () => {
    const here = await sessionWorld(kind);
    try {
      const { sessions, world, program } = here;
      const second = await here.another({ engine: await world.another() });
      const { id } = await sessions.open(ORG, 'thread', SPEC);
      const answer = async (input: string, by = sessions) => {
        const turn = await by.send(caller, id, input);
        for await (const _ of by.follow(ORG, id, turn.id, -1, new AbortController().signal)) void _;
        return by.turn(ORG, id, turn.id);
      };
      await Promise.all(
        Array.from({ length: 20 }, (_, i) => (i % 2 ? sessions : second).getOrSpawn(caller, id)),
      );
      expect(await sandboxesMade(world)).toBe(1);
      expect(await answer('one')).toMatchObject({ state: 'done', output: 'echo one\n' });

      const { sandboxId } = await sessions.get(ORG, id);
      await world.engine.pause(caller, sandboxId as never);
      const { start } = world.runtime;
      world.runtime.start = () => Promise.reject(unreachable());
      const waiting = await sessions.send(caller, id, 'two');
      await expect
        .poll(async () => (await sessions.turn(ORG, id, waiting.id)).error?.code, { timeout: 10_000 })
        .toBe('unreachable');
      world.runtime.start = start;
      expect(await answer('three', second)).toMatchObject({ state: 'done' });
      expect(await sessions.turn(ORG, id, waiting.id)).toMatchObject({ state: 'done', error: null });

      world.runtime.vanish(sandboxId as never, true);
      expect(await answer('four')).toMatchObject({ state: 'done', output: 'echo four\n' });
      const { change } = await sessions.get(ORG, id);
      // Its last files are lost; it continues from the last pause, and the program gets the history.
      expect(change).toMatchObject({ did: 'resumed', lost: ['files'], threadKept: false });
      expect(program.stdin.map(({ message }) => message.input)).toEqual(['one', 'two', 'three', 'four']);
      expect(program.stdin.at(-1)?.message.history).toHaveLength(3);
      await sessions.end(ORG, id);
      await sessions.reconcile();
      expect(await sessions.healing()).toMatchObject({ due: 0, leftovers: 0 });
    } finally {
      await here.dispose();
    }
  });
});
