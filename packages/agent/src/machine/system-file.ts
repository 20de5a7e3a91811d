/** Files of the system that the agent reads and replaces. The sandbox may have put anything in their place. */
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';

/** Empty for anything but a regular file: reading a FIFO would block forever. */
export function readRegularFile(path: string): string {
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile() === true;
  return isFile ? readFileSync(path, 'utf8') : '';
}

/** Replaces the file by a rename: the existing one may be a dangling link, and no program reads half of it. */
export function replaceFile(path: string, content: string): void {
  const fresh = `${path}.torpor`;
  rmSync(fresh, { force: true });
  writeFileSync(fresh, content, { mode: 0o644, flag: 'wx' });
  renameSync(fresh, path);
}
