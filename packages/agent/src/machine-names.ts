/**
 * What a machine that is the sandbox's own knows about names: its own, who resolves them, and /etc/hosts.
 * All of it changes when a sandbox wakes elsewhere, and none of it may keep a sandbox from waking.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface NameOrder {
  readonly resolvConf?: string | undefined;
  readonly hosts?: string | undefined;
}

const BEGIN = '# The lines down to the next mark are written anew at every start.';
const END = '# Yours begin here.';

/** Whether the files say what they were told to. */
export async function writeNames({ resolvConf, hosts }: NameOrder, etc = '/etc'): Promise<boolean> {
  const written = [
    resolvConf === undefined || (await replace(join(etc, 'resolv.conf'), resolvConf)),
    hosts === undefined || (await replaceHosts(join(etc, 'hosts'), hosts)),
  ];
  return written.every(Boolean);
}

async function replaceHosts(path: string, ours: string): Promise<boolean> {
  const now = await readFile(path, 'utf8').catch(() => '');
  return replace(path, mergeHosts(now, ours));
}

/** Our block stands first, so that it is what a look-up finds; everything else stays in its order. */
export function mergeHosts(now: string, ours: string): string {
  const lines = now.split('\n');
  const [begin, end] = [lines.indexOf(BEGIN), lines.indexOf(END)];
  const theirs = begin === -1 || end < begin ? lines : [...lines.slice(0, begin), ...lines.slice(end + 1)];
  return [BEGIN, ours.trimEnd(), END, ...theirs].join('\n');
}

/** By a new file in its place: what is there may be a link that leads nowhere. */
async function replace(path: string, content: string): Promise<boolean> {
  const fresh = `${path}.torpor`;
  try {
    if ((await readFile(path, 'utf8').catch(() => undefined)) === content) return true;
    await rm(fresh, { force: true });
    await writeFile(fresh, content, { mode: 0o644, flag: 'wx' });
    await rename(fresh, path);
    return true;
  } catch {
    return false;
  }
}
