/**
 * What a machine that is the sandbox's own knows about names: its own, who resolves them, and /etc/hosts.
 * All of it changes when a sandbox wakes elsewhere, and none of it may keep a sandbox from waking.
 *
 * Somebody waits for it at every start, and nobody else is there yet: so it is done in place, which takes a tenth of
 * the time that going through Node's threads would.
 */
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface NameOrder {
  readonly resolvConf?: string | undefined;
  readonly hosts?: string | undefined;
}

const BEGIN = '# The lines down to the next mark are written anew at every start.';
const END = '# Yours begin here.';

/** Whether the files say what they were told to. */
export function writeNames({ resolvConf, hosts }: NameOrder, etc = '/etc'): boolean {
  const written = [
    resolvConf === undefined || replace(join(etc, 'resolv.conf'), () => resolvConf),
    hosts === undefined || replace(join(etc, 'hosts'), (now) => mergeHosts(now, hosts)),
  ];
  return written.every(Boolean);
}

/** Our block stands first, so that it is what a look-up finds; everything else stays in its order. */
export function mergeHosts(now: string, ours: string): string {
  const lines = now.split('\n');
  const [begin, end] = [lines.indexOf(BEGIN), lines.indexOf(END)];
  const theirs = begin === -1 || end < begin ? lines : [...lines.slice(0, begin), ...lines.slice(end + 1)];
  return [BEGIN, ours.trimEnd(), END, ...theirs].join('\n');
}

/** By a new file in its place: what is there may be a link that leads nowhere. */
function replace(path: string, next: (now: string) => string): boolean {
  const fresh = `${path}.torpor`;
  try {
    const now = contentOf(path);
    const content = next(now);
    if (now === content) return true;
    rmSync(fresh, { force: true });
    writeFileSync(fresh, content, { mode: 0o644, flag: 'wx' });
    renameSync(fresh, path);
    return true;
  } catch {
    return false;
  }
}

/** Nothing, of what is no file of names: a pipe would be waited for, and for ever. */
function contentOf(path: string): string {
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile() === true;
  return isFile ? readFileSync(path, 'utf8') : '';
}
