/** The machine's own name, where the machine is the sandbox's. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { promisify } from 'node:util';

const VALID = /^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$/i;

/** Whether it worked: some sandboxes do not let anybody change it. */
export async function setHostname(name: string): Promise<boolean> {
  if (!VALID.test(name)) return false;
  // A sandbox that wakes as it slept has it, and to start a program would take longer than all the rest.
  if (hostname() === name) return true;
  try {
    await writeFile('/proc/sys/kernel/hostname', name);
    return true;
  } catch {
    return promisify(execFile)('hostname', [name]).then(
      () => true,
      () => false,
    );
  }
}
