/**
 * Calls back soon after events of one sandbox, for views that show more than its state. Also after a time without
 * events, because some may have been missed.
 */
import type { SandboxId } from '@torpor/sdk';
import { useEffect, useRef } from 'preact/hooks';
import { connection } from '../live/connection.ts';
import { onLedgerEvent } from '../live/follow.ts';

const AFTER_MS = 200;

export function useSandboxChanges(id: SandboxId, changed: () => void): void {
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => {
    let isDue = false;
    let isOver = false;
    const stop = onLedgerEvent(({ sandboxId }) => {
      if (sandboxId !== id || isDue) return;
      isDue = true;
      setTimeout(() => {
        isDue = false;
        if (!isOver) latest.current();
      }, AFTER_MS);
    });
    let wasBroken = false;
    const unfollow = connection.subscribe(({ mode }) => {
      if (wasBroken && mode === 'live') latest.current();
      wasBroken = mode === 'broken';
    });
    return () => {
      isOver = true;
      unfollow();
      stop();
    };
  }, [id]);
}
