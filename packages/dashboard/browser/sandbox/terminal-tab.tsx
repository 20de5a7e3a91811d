/** A terminal in the sandbox. Its code is loaded when it is opened first. */
import { useSignal } from '@preact/signals';
import { isTransportFault, TorporError } from '@torpor/sdk';
import { useEffect, useRef } from 'preact/hooks';
import { canChange } from '../shell/session.ts';
import { FaultNotice } from '../ui/fault.tsx';
import { Asleep } from './asleep.tsx';
import type { TabProps } from './sandbox-view.tsx';

const RETRY_MS = 1_000;
const SOON: ReadonlySet<string> = new Set(['unreachable', 'transitioning']);

function passesSoon(error: unknown): boolean {
  return isTransportFault(error) || (error instanceof TorporError && SOON.has(error.code));
}

export function TerminalTab({ sandbox }: TabProps) {
  const { id, state, generation } = sandbox;
  const box = useRef<HTMLDivElement>(null);
  const fault = useSignal<unknown>(undefined);
  const attempts = useSignal(0);
  const hasEnded = useSignal(false);
  const isRunning = state === 'running';
  useEffect(() => {
    const { current } = box;
    if (!isRunning || current === null || !canChange()) return undefined;
    const over = new AbortController();
    fault.value = undefined;
    hasEnded.value = false;
    let retry: ReturnType<typeof setTimeout> | undefined;
    const again = () => {
      retry = setTimeout(() => attempts.value++, RETRY_MS);
    };
    import('../terminal/terminal.ts')
      .then(({ openTerminal }) => openTerminal(current, id, over.signal))
      .then((end) => {
        if (over.signal.aborted) return;
        if (end === 'ended') hasEnded.value = true;
        else again();
      })
      .catch((error: unknown) => {
        if (over.signal.aborted) return;
        // The server restarts, or the sandbox is about to sleep: this tab continues by itself.
        if (passesSoon(error)) again();
        else fault.value = error;
      });
    return () => {
      clearTimeout(retry);
      over.abort();
    };
    // A new generation is a new start: the shell of the former one is gone, or continues behind a new connection.
  }, [id, isRunning, generation, attempts.value]);
  if (!canChange())
    return <p class="notice">A terminal can change the sandbox. This key or sign-in may only look.</p>;
  if (!isRunning)
    return <Asleep sandbox={sandbox} what="A terminal needs it awake, and connects again then." />;
  return (
    <div class="terminal-frame">
      {fault.value !== undefined && <FaultNotice error={fault.value} retry={() => attempts.value++} />}
      {hasEnded.value && (
        <div class="row">
          <span class="quiet">The shell has ended.</span>
          <button type="button" class="button small" onClick={() => attempts.value++}>
            New shell
          </button>
        </div>
      )}
      <div ref={box} class="terminal-box" />
    </div>
  );
}
