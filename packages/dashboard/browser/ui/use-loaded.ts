/** Loads something from the server for as long as a component is shown. */
import { useSignal } from '@preact/signals';
import { isTransportFault } from '@torpor/sdk';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import { connection } from '../live/connection.ts';

export interface Loaded<T> {
  /** Undefined until the first answer. A later failure keeps it. */
  readonly value: T | undefined;
  readonly error: unknown;
  reload(): void;
}

/**
 * Loads again when a dependency changes; the former value is dropped then. What could not be loaded because the server
 * was away is loaded when it is back.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
): Loaded<T> {
  const value = useSignal<T | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const latest = useRef(load);
  latest.current = load;
  const running = useRef<AbortController | undefined>(undefined);
  const reload = useCallback(() => {
    running.current?.abort();
    const over = new AbortController();
    running.current = over;
    latest.current(over.signal).then(
      (loaded) => {
        if (over.signal.aborted) return;
        value.value = loaded;
        error.value = undefined;
      },
      (thrown: unknown) => {
        if (!over.signal.aborted) error.value = thrown;
      },
    );
  }, []);
  useEffect(() => {
    value.value = undefined;
    error.value = undefined;
    reload();
    return () => running.current?.abort();
  }, dependencies);
  useEffect(
    () =>
      connection.subscribe(({ mode }) => {
        if (mode === 'live' && isTransportFault(error.peek())) reload();
      }),
    [],
  );
  return { value: value.value, error: error.value, reload };
}
