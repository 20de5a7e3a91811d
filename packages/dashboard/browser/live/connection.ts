/** Whether the page gets the server's events. Without them, what it shows may be old. */
import { signal } from '@preact/signals';

export type Connection =
  | { readonly mode: 'opening' }
  | { readonly mode: 'live' }
  /** `since`: the last moment at which what the page shows was known to be so. */
  | { readonly mode: 'broken'; readonly since: number };

export const connection = signal<Connection & { readonly since?: number }>({ mode: 'opening' });

export function connectionLive(): void {
  if (connection.value.mode !== 'live') connection.value = { mode: 'live' };
}

export function connectionBroken(): void {
  if (connection.value.mode !== 'broken') connection.value = { mode: 'broken', since: Date.now() };
}
