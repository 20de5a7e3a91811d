import { TorporError } from '@torpor/protocol';
import { array, assert, constantFrom, property } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FakeSandboxes } from '../../testing/index.ts';
import { EXCHANGE_TRANSITIONS, type ExchangeEvent, type ExchangeMode } from '../exchange/exchange-mode.ts';
import {
  type GateEvent,
  gateModeAfter,
  INITIAL_GATE_MODE,
  type WakeEvent,
  type WakeMode,
  wakeModeAfter,
} from './gate-mode.ts';
import { INITIAL_PORT_MODE, type PortEvent, type PortMode, portModeAfter } from './port-mode.ts';

const sandbox = new FakeSandboxes().make().info;

const gateEvents = array(
  constantFrom<GateEvent[]>('running', 'run_ended', 'close', 'drained', 'exchanges_aborted', 'open'),
  { maxLength: 20 },
);

/** The events after the last one of these kinds. */
const since = (events: readonly GateEvent[], ...kinds: readonly GateEvent[]) =>
  events.slice(events.findLastIndex((event) => kinds.includes(event)) + 1);

/** A second `close` of a closed gate changes nothing, so the first one after an `open` counts. */
const pauseOf = (events: readonly GateEvent[]): readonly GateEvent[] | undefined => {
  const period = since(events, 'open');
  const closed = period.indexOf('close');
  return closed < 0 ? undefined : period.slice(closed + 1);
};

describe('the mode of a gate, after any events', () => {
  const modeAfter = (events: readonly GateEvent[]) =>
    events.reduce((mode, event) => gateModeAfter(mode, event, sandbox), INITIAL_GATE_MODE);

  it('is draining or closed from a close until the next open', () => {
    assert(
      property(gateEvents, (events) => {
        const pause = pauseOf(events);
        const { name } = modeAfter(events);
        if (pause === undefined) expect(['unknown', 'open']).toContain(name);
        else
          expect(name).toBe(
            pause.includes('drained') || pause.includes('exchanges_aborted') ? 'closed' : 'draining',
          );
      }),
    );
  });

  it('has a run only when the open gate saw the sandbox run, and nothing has ended that run', () => {
    assert(
      property(gateEvents, (events) => {
        const { name, run } = modeAfter(events);
        const alive = since(events, 'open', 'exchanges_aborted', 'run_ended');
        // A gate that is closed takes no note of a running sandbox.
        const firstClose = alive.indexOf('close');
        const wasClosedBefore = pauseOf(events.slice(0, events.length - alive.length)) !== undefined;
        const whileOpen = wasClosedBefore ? [] : firstClose < 0 ? alive : alive.slice(0, firstClose);
        expect(run !== undefined).toBe(whileOpen.includes('running'));
        if (name === 'open') expect(run).toBeDefined();
        if (name === 'unknown') expect(run).toBeUndefined();
      }),
    );
  });
});

describe('the mode of a wake attempt, after any events', () => {
  const error = new TorporError('unreachable', 'The runtime does not answer.');
  const events = array(
    constantFrom<WakeEvent[]>(
      { type: 'started' },
      { type: 'succeeded' },
      { type: 'failed', error, at: 1 },
      { type: 'gate_opened' },
    ),
    { maxLength: 20 },
  );

  it('is waking from a start until its result, whatever the gate does meanwhile', () => {
    assert(
      property(events, (sequence) => {
        let mode: WakeMode = { name: 'idle' };
        for (const event of sequence) {
          const before = mode.name;
          mode = wakeModeAfter(mode, event);
          if (event.type === 'started') expect(mode.name).toBe('waking');
          if (before === 'waking' && event.type === 'gate_opened') expect(mode.name).toBe('waking');
          if (before !== 'waking' && event.type === 'failed') expect(mode.name).toBe(before);
          if (event.type === 'gate_opened') expect(mode.name).not.toBe('failed');
        }
      }),
    );
  });
});

describe('the mode of a port, after any events', () => {
  const events = array(
    constantFrom<PortEvent[]>('connected', 'connect_failed', 'delay_over', 'grace_over', 'refused'),
    { maxLength: 30 },
  );
  const run = { sandbox };
  const grace = { ms: 2_000, starting: undefined, since: 0 };

  it('is answering after every success, and its next delay is the shortest again', () => {
    assert(
      property(events, (sequence) => {
        let mode: PortMode = INITIAL_PORT_MODE;
        for (const event of [...sequence, 'connected' as const])
          mode = portModeAfter(mode, event, { run, grace });
        expect(mode).toEqual({ ...INITIAL_PORT_MODE, name: 'answering', run });
      }),
    );
  });

  it('starts one back-off for all failures that come before its end', () => {
    const first = portModeAfter(INITIAL_PORT_MODE, 'connect_failed', { run, grace });
    expect(portModeAfter(first, 'connect_failed', { run, grace })).toBe(first);
    expect(portModeAfter(first, 'grace_over', { run })).toBe(first);
  });

  it('doubles its delay up to 200 ms, and begins again in another run', () => {
    const delays: number[] = [];
    let mode: PortMode = INITIAL_PORT_MODE;
    for (let i = 0; i < 8; i++) {
      mode = portModeAfter(mode, 'connect_failed', { run, grace });
      delays.push(mode.delayMs);
      mode = portModeAfter(mode, 'delay_over');
    }
    expect(delays).toEqual([5, 10, 20, 40, 80, 160, 200, 200]);
    expect(portModeAfter(mode, 'connect_failed', { run: { sandbox }, grace }).delayMs).toBe(5);
  });
});

describe('the mode of an exchange, after any events', () => {
  it('never leaves "over", and responds only to a request that was dispatched', () => {
    const kinds: ExchangeEvent[] = [
      'dispatched',
      'requeued',
      'left_queue',
      'response_began',
      'flushed',
      'response_ended',
      'finished',
    ];
    assert(
      property(array(constantFrom(...kinds), { maxLength: 20 }), (events) => {
        let mode: ExchangeMode = 'queued';
        let isDispatched = false;
        for (const event of events) {
          const before: ExchangeMode = mode;
          mode = EXCHANGE_TRANSITIONS[before][event] ?? before;
          if (before === 'over') expect(mode).toBe('over');
          if (mode === 'sent') isDispatched = true;
          if (['head_buffered', 'streaming', 'lingering'].includes(mode)) expect(isDispatched).toBe(true);
        }
      }),
    );
  });
});
