import type { EventView } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import { fold } from './fold.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('the ledger on %s', (kind) => {
  let world: World;
  beforeEach(async () => {
    world = await makeWorld(kind);
  });
  afterEach(() => world.dispose());

  it('has no gaps, per sandbox and in total, however many transactions append at once', async () => {
    const { engine } = world;
    const sandboxes = await Promise.all(Array.from({ length: 8 }, () => engine.create(caller, {})));
    await Promise.all(sandboxes.map(({ sandbox: { id } }) => engine.pause(caller, id)));
    const all = await engine.events({ org: 'org', afterPosition: 0 }, 1_000);
    expect(all.map((event) => event.position)).toEqual(all.map((_, i) => i + 1));
    for (const {
      sandbox: { id },
    } of sandboxes) {
      const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
      expect(events.map((event) => event.seq)).toEqual(events.map((_, i) => i + 1));
      expect(fold(events)).toMatchObject({ state: 'paused' });
    }
  });

  it('streams to many readers from where each stopped, and never misses the last event (R95)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const stop = new AbortController();
    const read = async (afterSeq: number) => {
      const seen: EventView[] = [];
      for await (const event of engine.follow({ sandboxId: id, afterSeq }, stop.signal)) {
        seen.push(event);
        if (event.state === 'killed') break;
      }
      return seen;
    };
    const readers = Array.from({ length: 40 }, (_, i) => read(i % 5));
    for (let cycle = 0; cycle < 3; cycle++) {
      await engine.pause(caller, id);
      await engine.resume(caller, id);
    }
    await engine.kill(caller, id);
    const whole = await engine.events({ sandboxId: id, afterSeq: 0 }, 1_000);
    for (const [i, seen] of (await Promise.all(readers)).entries()) {
      expect(seen.map((event) => event.seq)).toEqual(whole.slice(i % 5).map((event) => event.seq));
    }
    stop.abort();
  });

  it('notifies the readers of another server too', async () => {
    const other = await world.another();
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const stop = new AbortController();
    const seen = (async () => {
      for await (const event of other.follow({ sandboxId: id, afterSeq: 0 }, stop.signal)) {
        if (event.state === 'paused') return event;
      }
      return undefined;
    })();
    await world.engine.pause(caller, id);
    expect(await seen).toMatchObject({ type: 'sandbox.paused' });
    stop.abort();
  });

  it('records the checkpoint of a pause and the source of a resume (R90, R95)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const { checkpoint } = await engine.pause(caller, id);
    await engine.resume(caller, id);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.find((event) => event.type === 'sandbox.paused')).toMatchObject({
      previousState: 'pausing',
      checkpointId: checkpoint.id,
      data: { reason: 'request', location: checkpoint.location, bytes: checkpoint.bytes },
    });
    expect(events.find((event) => event.type === 'sandbox.resumed')).toMatchObject({
      data: { source: { checkpointId: checkpoint.id, kind: 'memory' }, lost: [] },
    });
  });
});

describe('folding', () => {
  const event = (seq: number, state: EventView['state'], previousState: EventView['state'] | null) =>
    ({
      id: 'evt_x',
      seq,
      state,
      previousState,
      generation: 1,
      checkpointId: null,
    }) as Partial<EventView> as EventView;

  it('fails at a gap, a wrong predecessor, an illegal transition and a pause without a checkpoint', () => {
    const created = event(1, 'creating', null);
    expect(fold([])).toBeNull();
    expect(() => fold([created, event(3, 'running', 'creating')])).toThrow('follows seq 1');
    expect(() => fold([created, event(2, 'running', 'paused')])).toThrow('before it was creating');
    expect(() => fold([created, event(2, 'killed', 'creating')])).toThrow('cannot become');
    const running = event(2, 'running', 'creating');
    expect(() => fold([created, running, event(3, 'paused', 'running')])).toThrow('without a checkpoint');
  });
});
