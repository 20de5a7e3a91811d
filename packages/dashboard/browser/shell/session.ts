/**
 * Who is signed in. The server has set a cookie that no script can read; the token beside it belongs to this origin and
 * is of no use without the cookie. Together they are what an API key is to a program.
 */
import { signal } from '@preact/signals';
import { type IdentityView, type SignInRequest, Torpor, UnauthenticatedError } from '@torpor/sdk';

export type Session =
  | { readonly mode: 'starting' }
  | { readonly mode: 'signed out'; readonly error?: unknown }
  /** The server cannot be reached, so it is not known whether the token is valid. */
  | { readonly mode: 'unreachable'; readonly error: unknown }
  | { readonly mode: 'signed in'; readonly torpor: Torpor; readonly identity: IdentityView };

export const session = signal<Session>({ mode: 'starting' });

const STORED = 'torpor.token';
/** A little more than one heartbeat of the server's event streams. */
const SILENCE_MS = 20_000;
const RETRY_MS = 2_000;

function clientFor(apiKey: string | undefined): Torpor {
  return new Torpor({ url: location.origin, apiKey, silenceMs: SILENCE_MS, env: {} });
}

/** Uses a one-time link in the address, or else the token of an earlier sign-in. */
export async function startSession(): Promise<void> {
  const link = /^#sign-in=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (link !== undefined) {
    // The code must not stay in the address or in the history.
    history.replaceState(null, '', '#/');
    return signIn({ link });
  }
  const token = localStorage.getItem(STORED);
  if (token === null) session.value = { mode: 'signed out' };
  else await enter(token);
}

export async function signIn(request: SignInRequest): Promise<void> {
  try {
    const { token } = await clientFor(undefined).page.signIn(request);
    localStorage.setItem(STORED, token);
    await enter(token);
  } catch (error) {
    session.value = { mode: 'signed out', error };
  }
}

async function enter(token: string): Promise<void> {
  const torpor = clientFor(token);
  try {
    session.value = { mode: 'signed in', torpor, identity: await torpor.identity({ retries: 1 }) };
  } catch (error) {
    if (error instanceof UnauthenticatedError) forget();
    else {
      session.value = { mode: 'unreachable', error };
      setTimeout(() => {
        if (session.value.mode === 'unreachable') void enter(token);
      }, RETRY_MS);
    }
  }
}

export async function signOut(): Promise<void> {
  await clientFor(undefined)
    .page.signOut()
    .catch(() => {});
  forget();
}

/** The key was revoked or has expired, or the session has. */
export function forget(error?: unknown): void {
  localStorage.removeItem(STORED);
  session.value = { mode: 'signed out', error };
}

// Another tab has signed in or out.
addEventListener('storage', ({ key, newValue }) => {
  if (key !== STORED) return;
  if (newValue === null) session.value = { mode: 'signed out' };
  else if (session.value.mode !== 'signed in') void enter(newValue);
});

/** The client of the signed-in user. Views are shown only to one. */
export function torpor(): Torpor {
  if (session.value.mode !== 'signed in') throw new Error('Nobody is signed in.');
  return session.value.torpor;
}

/** Whether this sign-in may change anything. The server refuses changes in any case. */
export function canChange(): boolean {
  return !identity().readOnly;
}

export function identity(): IdentityView {
  if (session.value.mode !== 'signed in') throw new Error('Nobody is signed in.');
  return session.value.identity;
}
