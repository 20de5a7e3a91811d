/** The state of a sandbox: a word and a shape, so that colour is never needed to tell states apart. */
import type { SandboxState, SandboxView } from '@torpor/sdk';

const KINDS: Readonly<Record<SandboxState, 'running' | 'paused' | 'changing' | 'bad' | 'ended'>> = {
  creating: 'changing',
  running: 'running',
  pausing: 'changing',
  paused: 'paused',
  resuming: 'changing',
  killing: 'changing',
  killed: 'ended',
  failed: 'bad',
  lost: 'bad',
};

/** A sandbox that sleeps but is still in memory is `warm`: it wakes within milliseconds. */
export function StateBadge({ sandbox: { state, warm } }: { readonly sandbox: SandboxView }) {
  const kind = KINDS[state];
  const isWarm = state === 'paused' && warm === true;
  return (
    <span class="state">
      <span
        class={`dot ${kind}${kind === 'changing' ? ' moving' : ''}${isWarm ? ' warm' : ''}`}
        aria-hidden="true"
      />
      {state}
      {isWarm && <span class="tag">warm</span>}
    </span>
  );
}
