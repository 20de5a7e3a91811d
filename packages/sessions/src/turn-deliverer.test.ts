import type { SessionId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sessionWorld,
  testedDatabases,
} from '../testing/session-world.ts';
import type { Sessions } from './sessions.ts';

describe.each(testedDatabases)('turns on several servers on %s', (kind) => {
  let here: SessionWorld;
  let a: Sessions;
  let b: Sessions;
  let id: SessionId;
  beforeEach(async () => {
    here = await sessionWorld(kind);
    for (const server of ['a', 'b']) await setLease(server, 60_000);
    a = await here.another({ serverId: 'a', alone: false });
    b = await here.another({ serverId: 'b', alone: false });
    id = (await a.open(ORG, 'thread-1', SPEC)).id;
  });
  afterEach(() => here.dispose());

  const setLease = (server: string, ms: number) => {
    const { db, clock } = here.world;
    return db.transaction((tx) =>
      tx.query(
        `INSERT INTO servers (id, started_at, lease_until) VALUES ($1, 0, $2)
         ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`,
        [server, clock.now() + ms],
      ),
    );
  };
  const worker = async () => {
    const [row] = await here.world.db.query<{ worked_by: string | null }>('SELECT worked_by FROM sessions');
    return row?.worked_by;
  };
  /** Sends a turn through `a`, which gets no further than the answer. Resolves when the program has the turn. */
  const stuckAtA = async () => {
    const listening = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    let isFirst = true;
    here.program.fault = async (when) => {
      if (when !== 'listen' || !isFirst) return;
      isFirst = false;
      listening.resolve();
      await goOn.promise;
    };
    const turn = await a.send(caller, id, 'hello');
    await listening.promise;
    return { turn, goOn: goOn.resolve };
  };

  it('are left to the server that works on the session', async () => {
    const { turn, goOn } = await stuckAtA();
    expect(await worker()).toBe('a');
    await b.deliver();
    expect(await b.turn(ORG, id, turn.id)).toMatchObject({ state: 'answering', error: null });
    goOn();
    await a.deliver();
    expect(await b.turn(ORG, id, turn.id)).toMatchObject({ state: 'done', output: 'echo hello\n' });
    expect(await worker()).toBe(null);
  });

  it('go on at another server when the one that worked on the session is dead, and are delivered once', async () => {
    const { turn, goOn } = await stuckAtA();
    await setLease('a', -1);
    await b.deliver();
    expect(await b.turn(ORG, id, turn.id)).toMatchObject({ state: 'done', output: 'echo hello\n' });
    expect(here.program.stdin).toHaveLength(1);
    goOn();
    await a.deliver();
    expect(await a.turn(ORG, id, turn.id)).toMatchObject({ state: 'done', output: 'echo hello\n' });
  });
});
