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

/** The shape alone, where a word beside it names the state. */
export function StateDot({ state, warm = false }: { readonly state: SandboxState; readonly warm?: boolean }) {
  const kind = KINDS[state];
  return (
    <span
      class={`dot ${kind}${kind === 'changing' ? ' moving' : ''}${warm ? ' warm' : ''}`}
      aria-hidden="true"
    />
  );
}

/** A sandbox that sleeps but is still in memory is `warm`: it wakes within milliseconds. */
export function StateBadge({ sandbox: { state, warm } }: { readonly sandbox: SandboxView }) {
  const isWarm = state === 'paused' && warm === true;
  return (
    <span class="state">
      <StateDot state={state} warm={isWarm} />
      {state}
      {isWarm && <span class="tag">warm</span>}
    </span>
  );
}
