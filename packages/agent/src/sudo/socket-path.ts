/** Path of a user's sudo socket, for the agent and the `sudo` program. */
import { join } from 'node:path';

export function socketOf(directory: string, uid: number): string {
  return join(directory, `${uid}.sock`);
}
