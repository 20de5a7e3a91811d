/** The steps of a history of several nodes, as data. */
import fc from 'fast-check';

export type NodeVerb = 'pause' | 'replicate' | 'resume' | 'snapshot' | 'fork' | 'kill' | 'lifetime';

export type NodeStep =
  | { readonly do: 'create'; readonly node: number }
  | { readonly do: 'ask'; readonly verb: NodeVerb; readonly node: number; readonly of: number }
  | { readonly do: 'work'; readonly of: number }
  /** The server ends after so many half calls, and its sandboxes run on: the next request starts it again. */
  | { readonly do: 'crash'; readonly node: number; readonly halfCalls: number }
  /** The whole machine stops. */
  | { readonly do: 'die'; readonly node: number }
  /** The machine has lost the database: its guard ends its sandboxes, and its server lives on. */
  | { readonly do: 'cut'; readonly node: number }
  | { readonly do: 'fence' | 'forget' | 'back'; readonly node: number }
  | { readonly do: 'cordon' | 'uncordon' | 'drain' | 'drain round'; readonly node: number }
  | { readonly do: 'store'; readonly node: number; readonly isAway: boolean }
  | { readonly do: 'upload' | 'evict' | 'reconcile' | 'sweep' | 'inspect'; readonly node: number }
  | { readonly do: 'advance'; readonly ms: number }
  | { readonly do: 'settle' };

const node = fc.nat(2);
const of = fc.nat(3);

function steps<const D extends NodeStep['do']>(weight: number, ...names: D[]) {
  return { weight, arbitrary: fc.record({ do: fc.constantFrom(...names), node }) as fc.Arbitrary<NodeStep> };
}

const verbs: readonly NodeVerb[] = [
  ...(['pause', 'pause', 'replicate', 'replicate', 'resume', 'resume', 'resume'] as const),
  ...(['snapshot', 'fork', 'kill', 'lifetime'] as const),
];

const step: fc.Arbitrary<NodeStep> = fc.oneof(
  steps(3, 'create'),
  {
    weight: 16,
    arbitrary: fc.record({ do: fc.constant('ask' as const), verb: fc.constantFrom(...verbs), node, of }),
  },
  { weight: 9, arbitrary: fc.record({ do: fc.constant('work' as const), of }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('crash' as const), node, halfCalls: fc.nat(60) }) },
  steps(2, 'die'),
  steps(3, 'cut'),
  steps(5, 'fence'),
  steps(1, 'forget'),
  steps(4, 'back'),
  steps(1, 'cordon'),
  steps(2, 'uncordon'),
  steps(2, 'drain'),
  steps(3, 'drain round'),
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('store' as const), node, isAway: fc.boolean() }),
  },
  steps(5, 'upload'),
  steps(3, 'evict'),
  steps(4, 'reconcile', 'sweep', 'inspect'),
  { weight: 1, arbitrary: fc.record({ do: fc.constant('advance' as const), ms: fc.nat(400_000) }) },
  { weight: 10, arbitrary: fc.constant({ do: 'settle' as const }) },
);

/** The first step creates a sandbox for the others. */
export const nodeHistory: fc.Arbitrary<NodeStep[]> = fc
  .array(step, { minLength: 3, maxLength: 40, size: 'max' })
  .map((all) => [{ do: 'create', node: 0 }, { do: 'settle' }, ...all]);
