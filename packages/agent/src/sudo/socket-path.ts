/** Where the socket of a user lies, for both sides of it. */
import { join } from 'node:path';

export function socketOf(directory: string, uid: number): string {
  return join(directory, `${uid}.sock`);
}
