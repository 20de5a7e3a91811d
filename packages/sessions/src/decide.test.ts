import {
  ERROR_CODES,
  type Evidence,
  factsOf,
  SANDBOX_STATES,
  type SandboxState,
  TorporError,
} from '@torpor/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decide, type FoundSandbox } from './decide.ts';

const EVIDENCE: readonly Evidence[] = ['running', 'frozen', 'gone', 'unknown', 'ledger'];

const sandbox = (state: SandboxState, evidence: Evidence = 'ledger'): FoundSandbox => ({
  is: 'sandbox',
  state,
  evidence,
});
const failed = (code: (typeof ERROR_CODES)[number]) => new TorporError(code, 'It did not work.');

describe('decide', () => {
  it.each<[string, FoundSandbox, TorporError | undefined, string]>([
    ['none yet', { is: 'none' }, undefined, 'spawn first'],
    ['bound to one that nobody knows', { is: 'absent' }, undefined, 'spawn not_found'],
    ['running', sandbox('running', 'running'), undefined, 'use'],
    ['running, seen frozen', sandbox('running', 'frozen'), undefined, 'repair'],
    ['running, seen gone', sandbox('running', 'gone'), undefined, 'repair'],
    ['running, cannot be asked', sandbox('running', 'unknown'), undefined, 'refuse'],
    ['creating', sandbox('creating'), undefined, 'wait'],
    ['pausing', sandbox('pausing'), undefined, 'wait'],
    ['resuming', sandbox('resuming'), undefined, 'wait'],
    ['paused', sandbox('paused'), undefined, 'resume'],
    ['paused, another operation is under way', sandbox('paused'), failed('transitioning'), 'wait'],
    ['paused, platform away', sandbox('paused'), failed('unreachable'), 'refuse'],
    ['paused, machine full', sandbox('paused'), failed('capacity'), 'refuse'],
    ['paused, store away', sandbox('paused'), failed('checkpoint_unreadable'), 'refuse'],
    ['paused, data directory read-only', sandbox('paused'), failed('storage_readonly'), 'refuse'],
    [
      'paused, checkpoint missing',
      sandbox('paused'),
      failed('checkpoint_missing'),
      'spawn checkpoint_missing',
    ],
    [
      'paused, cannot be resumed',
      sandbox('paused'),
      failed('capability_unsupported'),
      'spawn capability_unsupported',
    ],
    ['paused, its services do not start', sandbox('paused'), failed('conflict'), 'spawn conflict'],
    ['lost by the resume', sandbox('lost'), failed('lost'), 'spawn lost'],
    ['killing', sandbox('killing'), undefined, 'spawn killed'],
    ['killed', sandbox('killed'), undefined, 'spawn killed'],
    ['failed', sandbox('failed'), undefined, 'spawn failed'],
    ['lost', sandbox('lost'), undefined, 'spawn lost'],
  ])('%s', (_, found, failure, expected) => {
    const decision = decide(found, failure);
    expect('why' in decision ? `${decision.action} ${decision.why}` : decision.action).toBe(expected);
  });

  it('replaces no sandbox because of a transient failure (R77)', () => {
    const anything = fc
      .constantFrom(...SANDBOX_STATES)
      .chain((state) => fc.constantFrom(...EVIDENCE).map((evidence) => sandbox(state, evidence)));
    const passing = fc.constantFrom(...ERROR_CODES.filter((code) => factsOf(code).retryable));
    fc.assert(
      fc.property(anything, passing, (found, code) => {
        expect(['refuse', 'wait']).toContain(decide(found, failed(code)).action);
      }),
    );
  });

  it('always replaces a dead sandbox (R75)', () => {
    for (const state of ['killed', 'failed', 'lost'] as const) {
      for (const evidence of EVIDENCE) expect(decide(sandbox(state, evidence)).action).toBe('spawn');
    }
  });
});
