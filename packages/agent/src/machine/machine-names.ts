/**
 * The names that the sandbox's own machine knows: its host name, resolv.conf and /etc/hosts. They change when a sandbox
 * starts on another host. A failure must not keep a sandbox from starting, so it is only reported.
 *
 * The server waits for this at every start, before any other request. So the files are written synchronously, which
 * takes a tenth of the time that Node's thread pool would need.
 */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { readRegularFile, replaceFile } from './system-file.ts';

const HOSTNAME = /^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$/i;

/** Returns whether the machine has the name now. Some sandboxes cannot change it. */
export async function setHostname(name: string): Promise<boolean> {
  if (!HOSTNAME.test(name)) return false;
  // A sandbox that was resumed with its memory has the name already. Starting a program would take longer than the
  // rest.
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

export interface NameFiles {
  readonly resolvConf?: string | undefined;
  readonly hosts?: string | undefined;
}

/** Marks around the server's lines in /etc/hosts. Files that earlier agents wrote have the same marks. */
const BEGIN = '# The lines down to the next mark are written anew at every start.';
const END = '# Yours begin here.';

/** Returns whether all given files have the given content. */
export function writeNames({ resolvConf, hosts }: NameFiles, etc = '/etc'): boolean {
  const written = [
    resolvConf === undefined || replace(join(etc, 'resolv.conf'), () => resolvConf),
    hosts === undefined || replace(join(etc, 'hosts'), (now) => mergeHosts(now, hosts)),
  ];
  return written.every(Boolean);
}

/** The server's lines come first, so that lookups find them first. All other lines keep their order. */
export function mergeHosts(now: string, ours: string): string {
  const lines = now.split('\n');
  const [begin, end] = [lines.indexOf(BEGIN), lines.indexOf(END)];
  const theirs = begin === -1 || end < begin ? lines : [...lines.slice(0, begin), ...lines.slice(end + 1)];
  return [BEGIN, ours.trimEnd(), END, ...theirs].join('\n');
}

function replace(path: string, next: (now: string) => string): boolean {
  try {
    const now = readRegularFile(path);
    const content = next(now);
    if (now !== content) replaceFile(path, content);
    return true;
  } catch {
    return false;
  }
}
