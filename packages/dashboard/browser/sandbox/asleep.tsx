/** Shown instead of something that needs a running sandbox. Only its button wakes the sandbox. */
import { act, mayRun } from '../sandboxes/actions.ts';
import type { TabProps } from './sandbox-view.tsx';

export function Asleep({ sandbox, what }: TabProps & { readonly what: string }) {
  const { state } = sandbox;
  return (
    <div class="empty">
      <h2>{state === 'paused' ? 'This sandbox is asleep' : `This sandbox is ${state}`}</h2>
      <p class="quiet">
        {what} {state === 'paused' ? 'Looking at this page does not wake it.' : ''}
      </p>
      {mayRun('wake', sandbox) && (
        <button type="button" class="button main" onClick={() => void act('wake', sandbox)}>
          Wake the sandbox
        </button>
      )}
    </div>
  );
}
