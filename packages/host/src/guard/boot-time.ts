/**
 * CLOCK_BOOTTIME in milliseconds: it never jumps, and it goes on while the machine sleeps. Node's own clocks stand still then.
 * The kernel shows it in /proc/uptime, in steps of ten milliseconds.
 */
import { openSync, readSync } from 'node:fs';
import { TorporError } from '@torpor/protocol';

let file: number | undefined;
const buffer = Buffer.alloc(64);

export function bootTime(): number {
  try {
    file ??= openSync('/proc/uptime', 'r');
    const length = readSync(file, buffer, 0, buffer.length, 0);
    const seconds = Number.parseFloat(buffer.toString('latin1', 0, length));
    if (Number.isFinite(seconds)) return seconds * 1_000;
  } catch (cause) {
    throw noBootTime(cause);
  }
  throw noBootTime(undefined);
}

function noBootTime(cause: unknown): TorporError {
  return new TorporError(
    'capability_unsupported',
    'The time since the start of this machine cannot be read.',
    {
      hint: 'A node of several needs Linux with /proc.',
      cause,
    },
  );
}
