/** The present second. Components that read it are drawn again every second, and nothing else is. */
import { signal } from '@preact/signals';

export const now = signal(Date.now());

setInterval(() => {
  now.value = Date.now();
}, 1_000);
