/** Connects the ledger with everything that it keeps up to date, for as long as a user is signed in. */
import { batch, effect } from '@preact/signals';
import type { EventView } from '@torpor/sdk';
import { forget, session } from '../shell/session.ts';
import { connectionBroken, connectionLive } from './connection.ts';
import { followLedger } from './ledger.ts';
import { addRecent, forgetRecent, loadRecent } from './recent-events.ts';
import { applyEvent, forgetSandboxes, loadSandboxes, refreshWarm } from './sandboxes.ts';

const WARM_EVERY_MS = 20_000;

type Listener = (event: EventView) => void;
const listeners = new Set<Listener>();

/** Calls back for every event of the organisation. Returns a function that ends it. */
export function onLedgerEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function followWhileSignedIn(): void {
  effect(() => {
    const now = session.value;
    if (now.mode !== 'signed in') return undefined;
    const { org, keyId } = now.identity;
    const over = new AbortController();
    followLedger(
      now.torpor,
      `${org} ${keyId}`,
      {
        onEvent: (event) =>
          batch(() => {
            connectionLive();
            applyEvent(event);
            addRecent(event);
            for (const listener of listeners) listener(event);
          }),
        onBegin: () => {
          connectionLive();
          void loadSandboxes();
          void loadRecent();
        },
        onBreak: connectionBroken,
        onRefusal: forget,
      },
      over.signal,
    );
    const warmth = setInterval(() => void refreshWarm(), WARM_EVERY_MS);
    return () => {
      clearInterval(warmth);
      over.abort();
      forgetSandboxes();
      forgetRecent();
    };
  });
}
