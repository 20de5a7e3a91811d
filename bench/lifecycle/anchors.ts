/** What others say or measured about the same acts, to read our own figures beside. */
export interface Anchor {
  readonly act: 'wake' | 'create' | 'fork';
  readonly what: string;
  readonly ms: number;
  /** `claimed`: by the vendor, about itself. */
  readonly kind: 'claimed' | 'measured by others';
  readonly source: string;
}

export const ANCHORS: readonly Anchor[] = [
  { act: 'wake', what: 'Blaxel, hosted, KVM', ms: 25, kind: 'claimed', source: 'its documentation: < 25 ms' },
  { act: 'wake', what: 'AgentENV, KVM', ms: 50, kind: 'claimed', source: 'its README: < 50 ms' },
  {
    act: 'wake',
    what: 'Dormice, cgroup freezer',
    ms: 50,
    kind: 'claimed',
    source: 'its README: about 50 ms',
  },
  { act: 'wake', what: 'Koyeb, light sleep', ms: 200, kind: 'claimed', source: 'its blog: about 200 ms' },
  {
    act: 'wake',
    what: 'Sprites, warm',
    ms: 300,
    kind: 'claimed',
    source: 'its documentation: 100 to 500 ms',
  },
  { act: 'wake', what: 'E2B, hosted', ms: 1_000, kind: 'claimed', source: 'its documentation: about 1 s' },
  {
    act: 'wake',
    what: 'agent-substrate, gVisor on Kubernetes',
    ms: 3_370,
    kind: 'measured by others',
    source: 'its own measurement, median',
  },
  {
    act: 'create',
    what: 'Daytona, hosted',
    ms: 186,
    kind: 'measured by others',
    source: 'computesdk/benchmarks, 2026-05-05, median to the first command',
  },
  {
    act: 'create',
    what: 'E2B, hosted',
    ms: 491,
    kind: 'measured by others',
    source: 'computesdk/benchmarks, 2026-05-05, median to the first command',
  },
  { act: 'fork', what: 'Morph, hosted', ms: 250, kind: 'claimed', source: 'its site: < 250 ms' },
  { act: 'fork', what: 'CodeSandbox, hosted', ms: 863, kind: 'claimed', source: 'as quoted by mitos' },
];
