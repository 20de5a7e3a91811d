/** Does something again and again while a component is shown and its tab can be seen. */
import { useEffect, useRef } from 'preact/hooks';

/** Undefined instead of a time stops it. */
export function useEvery(milliseconds: number | undefined, act: () => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (milliseconds === undefined) return undefined;
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') latest.current();
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
