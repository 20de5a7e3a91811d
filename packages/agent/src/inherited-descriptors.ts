/**
 * Descriptors that came with the process from whoever started it. Node hands its own to nobody, and of those it
 * was started with it keeps the low ones back; any other would go on to every process of the sandbox.
 */
import { closeSync, readdirSync, readFileSync } from 'node:fs';

const FDINFO = '/proc/self/fdinfo';
/** As Linux writes it there. */
const CLOSES_ON_EXEC = 0o2000000;
const STDERR = 2;

/** To be called before anything else is opened. Where there is no /proc, they stay. */
export function closeInherited(): void {
  for (const name of descriptors()) {
    const fd = Number(name);
    if (fd > STDERR && isHandedOn(fd)) closeSync(fd);
  }
}

function descriptors(): string[] {
  try {
    return readdirSync(FDINFO);
  } catch {
    return [];
  }
}

function isHandedOn(fd: number): boolean {
  try {
    const [, flags] = /^flags:\s*(\d+)$/m.exec(readFileSync(`${FDINFO}/${fd}`, 'utf8')) ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSES_ON_EXEC) === 0;
  } catch {
    // The one that the directory was read by.
    return false;
  }
}
