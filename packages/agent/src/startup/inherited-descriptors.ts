/**
 * Closes file descriptors that the agent inherited from the process that started it. Every process of the sandbox would
 * inherit them as well: Node marks its own descriptors close-on-exec, but only the low ones of those it inherited.
 */
import { closeSync, readFileSync } from 'node:fs';

/** As Linux writes the flag in /proc/self/fdinfo. */
const O_CLOEXEC = 0o2000000;

/**
 * Closes only the descriptors that the starting process names. Any other may be in use by a thread of Node, which for
 * example reads certificates in the background. Must be called before the agent starts any process.
 */
export function closeInherited(named: readonly number[]): void {
  for (const fd of named) if (isInherited(fd)) closeSync(fd);
}

/** A descriptor with this number that is marked close-on-exec was not inherited: it belongs to Node and stays open. */
function isInherited(fd: number): boolean {
  try {
    const [, flags] = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8')) ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    return false;
  }
}
