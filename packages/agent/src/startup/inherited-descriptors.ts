/**
 * Descriptors that came with the process from whoever started it, and would go on to every process of the sandbox.
 * Node hands its own to nobody, and of those it was started with it keeps the low ones back, but not all.
 */
import { closeSync, readFileSync } from 'node:fs';

/** As Linux writes it in /proc. */
const CLOSES_ON_EXEC = 0o2000000;

/**
 * Only those that the starter names: whatever else is open may be in use by a thread of Node, which reads
 * certificates, for one, in the background. To be called before anything is started.
 */
export function closeInherited(named: readonly number[]): void {
  for (const fd of named) if (isHandedOn(fd)) closeSync(fd);
}

/** One that has the number and is not handed on is another, and Node's own. */
function isHandedOn(fd: number): boolean {
  try {
    const [, flags] = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8')) ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSES_ON_EXEC) === 0;
  } catch {
    return false;
  }
}
