import { join } from 'node:path';

/** Where the runtime keeps what lives as long as the machine runs: gone after a restart, as the sandboxes are. */
export function runDirectory(tag: string): string {
  return join('/run/torpor', tag);
}
