/** The steps of a history as data. fast-check generates histories and shrinks those that fail. */
import { FAULTS, FAULTY_CALLS, type Fault, type FaultyCall } from '@torpor/engine/testing';
import fc from 'fast-check';

export type Verb = 'pause' | 'resume' | 'snapshot' | 'fork' | 'rollback' | 'kill' | 'lifetime' | 'job';

export type Step =
  | { readonly do: 'create'; readonly server: number; readonly key: number | null }
  | {
      readonly do: 'ask';
      readonly verb: Verb;
      readonly server: number;
      readonly of: number;
      readonly n: number;
    }
  | { readonly do: 'work'; readonly of: number; readonly text: string }
  | { readonly do: 'vanish'; readonly of: number; readonly forget: boolean }
  | {
      readonly do: 'damage';
      readonly of: number;
      readonly how: 'missing' | 'corrupt';
      readonly memoryOnly: boolean;
    }
  | { readonly do: 'fault'; readonly call: FaultyCall; readonly fault: Fault }
  | { readonly do: 'upgrade' }
  | { readonly do: 'crash'; readonly server: number; readonly halfCalls: number }
  | { readonly do: 'restart'; readonly server: number }
  | { readonly do: 'advance'; readonly ms: number }
  | { readonly do: 'reconcile' | 'sweep' | 'inspectCheckpoints'; readonly server: number }
  | { readonly do: 'settle' };

const server = fc.nat(1);
const of = fc.nat(3);

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('create' as const), server, key: fc.option(fc.nat(1)) }),
  },
  {
    weight: 14,
    arbitrary: fc.record({
      do: fc.constant('ask' as const),
      verb: fc.constantFrom<Verb>(
        ...([
          'pause',
          'pause',
          'resume',
          'resume',
          'snapshot',
          'fork',
          'rollback',
          'kill',
          'lifetime',
          'job',
        ] as const),
      ),
      server,
      of,
      n: fc.nat(4),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant('work' as const), of, text: fc.string({ maxLength: 3 }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('vanish' as const), of, forget: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('damage' as const),
      of,
      how: fc.constantFrom('missing' as const, 'corrupt' as const),
      memoryOnly: fc.boolean(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('fault' as const),
      call: fc.constantFrom(...FAULTY_CALLS),
      fault: fc.constantFrom(...FAULTS),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('upgrade' as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('crash' as const), server, halfCalls: fc.nat(60) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('restart' as const), server }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('advance' as const), ms: fc.nat(400_000) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('reconcile' as const, 'sweep' as const, 'inspectCheckpoints' as const),
      server,
    }),
  },
  { weight: 10, arbitrary: fc.record({ do: fc.constant('settle' as const) }) },
);

/** Long histories find more bugs. The first step creates a sandbox for the others. */
export const history: fc.Arbitrary<Step[]> = fc
  .array(step, { minLength: 3, maxLength: 40, size: 'max' })
  .map((steps) => [{ do: 'create', server: 0, key: null }, { do: 'settle' }, ...steps]);
