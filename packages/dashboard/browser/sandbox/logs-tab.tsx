/** The output of a service or background process, as it comes. Reading it never wakes the sandbox. */
import { useSignal } from '@preact/signals';
import { isTransportFault } from '@torpor/sdk';
import { useEffect, useRef } from 'preact/hooks';
import { route } from '../shell/router.ts';
import { torpor } from '../shell/session.ts';
import { faultOf } from '../ui/fault.tsx';
import { useLoaded } from '../ui/use-loaded.ts';
import { Asleep } from './asleep.tsx';
import { plainText } from './plain-text.ts';
import type { TabProps } from './sandbox-view.tsx';

/** Older output is dropped from the view. */
const MAX_CHARACTERS = 200_000;
const RETRY_MS = 1_000;

export function LogsTab({ sandbox }: TabProps) {
  const { id, state, generation } = sandbox;
  const isRunning = state === 'running';
  const { value: processes } = useLoaded(
    (signal) => torpor().sandboxes.processes(id, { signal }),
    [id, state],
  );
  const chosen = useSignal(route.value.query.get('process') ?? '');
  const text = useSignal('');
  const end = useSignal('');
  const attempts = useSignal(0);
  const box = useRef<HTMLElement>(null);
  const followable = (processes ?? []).flatMap(({ id: process, kind }) =>
    process === null || kind === 'process' ? [] : [process],
  );
  const process = followable.includes(chosen.value) ? chosen.value : followable[0];
  useEffect(() => {
    if (!isRunning || process === undefined) return undefined;
    const over = new AbortController();
    text.value = '';
    end.value = '';
    const read = async () => {
      for await (const event of torpor().sandboxes.output(id, process, {
        follow: true,
        signal: over.signal,
      })) {
        if (event.type === 'stdout' || event.type === 'stderr') {
          text.value = (text.value + plainText(event.data)).slice(-MAX_CHARACTERS);
        } else if (event.type === 'end') end.value = `The process ended with code ${event.exitCode}.`;
      }
    };
    let retry: ReturnType<typeof setTimeout> | undefined;
    read().catch((error: unknown) => {
      if (over.signal.aborted) return;
      if (isTransportFault(error)) retry = setTimeout(() => attempts.value++, RETRY_MS);
      else end.value = faultOf(error).message;
    });
    return () => {
      clearTimeout(retry);
      over.abort();
    };
  }, [id, isRunning, process, generation, attempts.value]);
  useEffect(() => {
    const { current } = box;
    if (current === null) return;
    // Stays at the end unless the user has scrolled up.
    if (current.scrollHeight - current.scrollTop - current.clientHeight < 80)
      current.scrollTop = current.scrollHeight;
  }, [text.value]);
  if (!isRunning)
    return <Asleep sandbox={sandbox} what="Output is kept in the sandbox and can be read while it runs." />;
  if (processes === undefined) return null;
  if (process === undefined) {
    return (
      <div class="empty">
        <h2>No output to show</h2>
        <p class="quiet">
          Services and background processes keep their output. Start one with{' '}
          <code>torpor exec --background</code>, or declare a service.
        </p>
      </div>
    );
  }
  return (
    <div class="logs">
      <label class="row">
        <span class="small quiet">Process</span>
        <select
          class="narrow"
          value={process}
          onChange={({ currentTarget }) => {
            chosen.value = currentTarget.value;
          }}
        >
          {followable.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it */}
      <section ref={box} class="output" tabIndex={0} aria-label="Output">
        <pre>{text.value === '' ? <span class="quiet">Nothing has been printed yet.</span> : text.value}</pre>
      </section>
      {end.value !== '' && <p class="notice">{end.value}</p>}
    </div>
  );
}
