import { NEXT_STATES, SANDBOX_STATES, type SandboxState } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../testing/fresh-database.ts';
import { type Command, decide, LIFECYCLE } from './lifecycle.ts';

const COMMANDS: readonly Command[] = [
  'pause',
  'resume',
  'snapshot',
  'fork',
  'rollback',
  'set_lifetime',
  'set_network',
  'set_services',
  'kill',
  'started',
  'start_failed',
  'sealed',
  'seal_failed',
  'snapshotted',
  'recovered',
  'lost',
  'destroyed',
];

describe('the lifecycle', () => {
  it('makes exactly the changes of state that the protocol allows (R84)', () => {
    const made = new Map<SandboxState, Set<SandboxState>>(SANDBOX_STATES.map((state) => [state, new Set()]));
    for (const from of SANDBOX_STATES) {
      for (const entry of Object.values(LIFECYCLE[from])) {
        if (typeof entry === 'object' && entry.to !== from) made.get(from)?.add(entry.to);
      }
    }
    for (const from of SANDBOX_STATES) {
      expect([...(made.get(from) ?? [])].sort(), from).toEqual([...NEXT_STATES[from]].sort());
    }
  });

  it('answers every command in every state, and refuses with a code that fits the state', () => {
    for (const state of SANDBOX_STATES) {
      for (const command of COMMANDS) {
        const decision = decide(state, command);
        if (decision.kind !== 'refused') continue;
        expect(['killed', 'lost', 'conflict', 'transitioning'], `${command} when ${state}`).toContain(
          decision.code,
        );
      }
    }
    expect(decide('pausing', 'resume')).toEqual({ kind: 'refused', code: 'transitioning' });
    expect(decide('killed', 'resume')).toEqual({ kind: 'refused', code: 'killed' });
    expect(decide('lost', 'resume')).toEqual({ kind: 'refused', code: 'lost' });
  });

  it('returns to running when a pause fails and to paused when a resume fails (R78, R99)', () => {
    expect(decide('pausing', 'seal_failed')).toMatchObject({ to: 'running' });
    expect(decide('resuming', 'start_failed')).toMatchObject({ to: 'paused' });
  });

  it('allows a kill in every state that is not terminal', () => {
    for (const state of SANDBOX_STATES) expect(decide(state, 'kill').kind, state).not.toBe('refused');
  });

  it('accepts a request for the state that the sandbox is in already', () => {
    expect(decide('paused', 'pause')).toEqual({ kind: 'already' });
    expect(decide('running', 'resume')).toEqual({ kind: 'already' });
    expect(decide('killed', 'kill')).toEqual({ kind: 'already' });
  });
});

describe.each(databaseKinds)('the transitions in %s', (kind) => {
  let fresh: FreshDatabase;
  beforeAll(async () => {
    fresh = await freshDatabase(kind);
  });
  afterAll(() => fresh.dispose());

  it('are the same as in the protocol', async () => {
    const rows = await fresh.db.query<{ from_state: SandboxState; to_state: SandboxState }>(
      'SELECT from_state, to_state FROM transitions WHERE from_state <> to_state',
    );
    const inDatabase = rows.map((row) => `${row.from_state} → ${row.to_state}`).sort();
    const inProtocol = SANDBOX_STATES.flatMap((from) =>
      NEXT_STATES[from].map((to) => `${from} → ${to}`),
    ).sort();
    expect(inDatabase).toEqual(inProtocol);
  });
});
