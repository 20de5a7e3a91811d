import { join } from 'node:path';

/** The directory for state that lives until the host reboots, as sandboxes do. */
export function runDirectory(tag: string): string {
  return join('/run/torpor', tag);
}
